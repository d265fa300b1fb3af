"""A mark makes another revision of a file and leaves its other lines alone, whoever wrote it."""

import pytest

from homeport.catalog.deployment import asks_the_same, parse_deployment
from homeport.catalog.marks import mark_text, with_mark
from homeport.vocabulary import SiteName

ID = "3952aa29-df29-4549-bc5f-111111111111"
PATH, HOME = f"deployments/home/{ID}.yaml", SiteName("home")
BY_HAND = f"""# mine
id: {ID}
metadata: {{name: hello, namespace: homeport, deviceId: home}}
spec:
  applicationId: demo-hello
  deploymentProfile:
    type: compose
    components:
    - name: web
      properties: {{repository: oci://registry.example/web, revision: "1.0.0"}}
"""
OURS = BY_HAND + "  x-homeport-extensions:\n    profile: compose\n    policy: {retries: 1}\n"


@pytest.mark.parametrize("text", [BY_HAND, OURS])
def test_a_retry_makes_another_revision_of_the_same_content(text: str) -> None:
    before = parse_deployment(text.encode(), PATH, HOME)
    once = with_mark(text.encode(), PATH, HOME, "retry", mark_text("11111111-x", "ann"))
    twice = with_mark(once, PATH, HOME, "retry", mark_text("22222222-x", 'b"o\\b'))
    first, second = (parse_deployment(each, PATH, HOME) for each in (once, twice))
    assert (first.retry, second.retry) == ("11111111 by ann", "22222222 by b-o-b")
    assert len({before.revision, first.revision, second.revision}) == 3
    assert asks_the_same(before, first) and asks_the_same(first, second)


def test_the_other_lines_of_a_file_stay_as_they_are() -> None:
    once = with_mark(OURS.encode(), PATH, HOME, "retry", "1 by ann")
    twice = with_mark(once, PATH, HOME, "retry", "2 by ann")
    assert once.replace(b'    retry: "1 by ann"\n', b"") == OURS.encode()
    assert twice.replace(b'    retry: "2 by ann"\n', b"") == OURS.encode()


def test_a_restart_gives_every_component_another_digest() -> None:
    before = parse_deployment(OURS.encode(), PATH, HOME)
    after = parse_deployment(with_mark(OURS.encode(), PATH, HOME, "restart", "1 by ann"), PATH, HOME)
    assert [part.name for part in after.release.components] == ["web"]
    assert before.release.components[0].digest != after.release.components[0].digest
    assert not asks_the_same(before, after)
