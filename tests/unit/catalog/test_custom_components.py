"""Our description of an image or a program is judged where it is written: in descriptions and in deployment files."""

from pathlib import Path

import pytest

from homeport.catalog.deployment import deployment_path, parse_deployment, render_deployment
from homeport.catalog.description import parse_description
from homeport.core.custom import OURS
from homeport.core.parameters import check_values
from homeport.errors import InvalidInput
from homeport.vocabulary import DeploymentId, SiteName

DESCRIPTION = """\
apiVersion: v1
id: single
metadata:
  name: Single
  version: 1.0.0
  catalog:
    organization: [{name: Example}]
deploymentProfiles:
  - type: custom
    id: image
    deviceConstraints:
      eligibilityRules:
        - labelSelector:
            matchExpressions: [{key: homeport.engine, operator: Exists}]
    components:
      - name: web
        properties: {repository: "oci://registry.example/web", revision: 1.0.0}
        x-homeport-extensions:
          image:
            ports: ["8080:80"]
            health: {http: "http://127.0.0.1:8080/"}
parameters:
  greeting:
    value: hello
    targets: [{pointer: GREETING, components: [web]}]
"""
SITE = SiteName("home")
ID = DeploymentId("6f1c2a34-0000-4000-8000-000000000001")


def found(text: str) -> list[tuple[str, int | None, str]]:
    with pytest.raises(InvalidInput) as caught:
        parse_description(text.encode(), "apps/single/margo.yaml")
    assert {problem.path for problem in caught.value.problems} == {"apps/single/margo.yaml"}
    return [(problem.field, problem.line, problem.message) for problem in caught.value.problems]


def rendered() -> bytes:
    app = parse_description(DESCRIPTION.encode(), "margo.yaml").app
    values, problems = check_values(app, app.profiles[0], {})
    assert not problems
    return render_deployment(
        deployment_id=ID, site=SITE, name="single", app=app, app_name="single", profile=app.profiles[0], values=values
    )


def test_a_wrong_field_is_named_with_its_file_and_line() -> None:
    place = "deploymentProfiles[0].components[0].x-homeport-extensions.image"
    ((field, line, message),) = found(DESCRIPTION.replace('["8080:80"]', '["8080"]'))
    assert (field, line) == (f"{place}.ports[0]", 20)
    assert 'write "8080:80"' in message
    wrong = found(DESCRIPTION.replace("health: {http:", "health: {htpp:"))
    assert {line for _, line, _ in wrong} == {21}
    assert any('Did you mean "http"?' in message for _, _, message in wrong)
    ((field, line, _),) = found(
        DESCRIPTION.replace("            ports:", "            process: x\n            ports:")
    )
    assert (field, line) == (f"{place}.process", 20)


def test_an_image_in_a_compose_profile_is_no_image() -> None:
    ((field, line, message),) = found(DESCRIPTION.replace("type: custom", "type: compose"))
    assert (field, line) == ("deploymentProfiles[0].components[0].x-homeport-extensions.image", 19)
    assert "belongs to components of type custom" in message


def test_a_parameter_of_an_image_is_a_variable() -> None:
    ((field, _, message),) = found(DESCRIPTION.replace("pointer: GREETING", "pointer: not/a/name"))
    assert field == "parameters.greeting.targets[0].pointer"
    assert "environment variable" in message


def test_a_deployment_file_carries_the_description_and_is_judged_too() -> None:
    content = rendered()
    (part,) = parse_deployment(content, deployment_path(SITE, ID), SITE).release.components
    assert part.environment == {"GREETING": "hello"}
    assert part.extensions[OURS]["image"]["ports"] == ["8080:80"]
    broken = content.replace(b"8080:80", b"8080")
    with pytest.raises(InvalidInput) as caught:
        parse_deployment(broken, deployment_path(SITE, ID), SITE)
    (problem,) = caught.value.problems
    lines = broken.decode().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if text.strip().startswith("- ") and "8080" in text)
    assert (problem.path, problem.line) == (deployment_path(SITE, ID), line)
    assert problem.field.endswith("x-homeport-extensions.image.ports[0]")


def test_the_example_of_the_how_to_is_valid() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "run-a-single-image.md"
    text = page.read_text("utf-8").split("```yaml\n")[1].partition("```")[0]
    app = parse_description(text.encode(), "margo.yaml").app
    assert app.profiles[0].components[0].extensions[OURS]["image"]["network"] == "host"


def test_a_component_of_ours_says_what_it_runs_and_one_of_another_vendor_need_not() -> None:
    empty = DESCRIPTION.replace("          image:\n", "          note: {}\n")
    empty = empty.replace("            ports", "            #").replace("            health", "            #")
    ((field, _, message),) = found(empty)
    assert field == "deploymentProfiles[0].components[0]" and "what it runs" in message
    without = empty.replace("        x-homeport-extensions:\n          note: {}\n", "")
    assert "what it runs" in found(without)[0][2]  # its rule is for our nodes
    for_others = without.replace("homeport.engine", "acme.example/loader")
    odd = for_others.replace("revision: 1.0.0}", "revision: 1.0.0, flash: {slots: [a, b]}}")
    for text in (for_others, odd):
        assert parse_description(text.encode(), "margo.yaml").app.profiles[0].components[0].name == "web"
    ((field, _, message),) = found(odd.replace("type: custom", "type: compose"))
    assert field.endswith("properties.flash") and "is not a field" in message
