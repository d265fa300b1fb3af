"""One bad document harms itself alone: arbitrary values in every field of every document that we read.

Nothing but our own refusals may come out, none of them may be a fault of ours, and the neighbours of a bad file in
the same snapshot are read as if it were not there. What was accepted is used the way roles use it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.catalog.deployment import parse_deployment
from homeport.catalog.description import parse_description
from homeport.catalog.marker import check_marker, read_labels, render_marker
from homeport.catalog.rollout import parse_rollout, render_rollout
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.parameters import check_values
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput, PermanentError
from homeport.fleet.shared.snapshot import BrokenSource, read_snapshot
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, Liveness, NodeId, ProfileType, RolloutId, SiteName
from tests.support.builders import NOW
from tests.support.deployment_files import deployment_file
from tests.support.examples import examples
from tests.support.rollouts import ALL, ONE, a_rollout
from tests.support.vectors import load_yaml

SITE, COMMIT = SiteName("north"), Commit("0" * 40)
ID = "c0ffee00-5eed-4000-8000-00decade0000"
PATH = f"deployments/{SITE}/{ID}.yaml"
MARKER = TreeFile(f"deployments/{SITE}/site.yaml", render_marker(SITE))
PLACE = "PLACE-OF-THE-VALUE"


def a_deployment() -> dict[str, Any]:
    data: dict[str, Any] = load_yaml("deployment.yaml")
    data["id"], data["metadata"]["deviceId"] = ID, SITE
    data["spec"]["x-homeport-extensions"] = {
        "app": {"category": "demo", "name": "hello", "version": "1.0.0"},
        "profile": "compose",
        "rollout": ID,
        "placement": {"mode": "count", "count": 2, "nodes": ["a"], "selector": "gpu"},
        "policy": {"retries": 1, "backoff": "5s", "rollback": True, "deadline": "1h"},
        "removal": {"images": True},
    }
    return data


def a_rollout_file() -> dict[str, Any]:
    rollout = a_rollout((ONE, "a"), (ALL, None), parameters={"x": 1}, selector=parse_selector("region=eu"))
    intent = replace(rollout.intent, id=RolloutId(ID), joined=(SiteName("z"),), remove_images=True)
    data: dict[str, Any] = yaml.safe_load(render_rollout(intent))
    return data


def read_deployment(content: bytes) -> None:
    desired = parse_deployment(content, PATH, SITE)
    json.dumps(desired.parameters)
    capabilities = Capabilities(
        cpu_cores=4,
        memory_bytes=2**33,
        disk_bytes=2**36,
        disk_free_bytes=2**35,
        os="linux",
        architecture="amd64",
        engine="podman",
        profile_types=(ProfileType.COMPOSE,),
    )
    info = NodeInfo(NodeId("a"), "a", capabilities, {"gpu": "yes"})
    place(desired, [Node(info, SITE, Liveness.LIVE, NOW, NOW)])


def read_description(content: bytes) -> None:
    app = parse_description(content, "demo/hello/1.0.0/margo.yaml").app
    for profile in app.profiles:
        check_values(app, profile, {parameter.name: parameter.value or "" for parameter in app.parameters})


def read_marker(content: bytes) -> None:
    check_marker(content, MARKER.path, SITE)
    read_labels(content, MARKER.path)


DOCUMENTS: dict[str, tuple[dict[str, Any], Callable[[bytes], object]]] = {
    "deployment": (a_deployment(), read_deployment),
    "description": (load_yaml("description.yaml"), read_description),
    "marker": ({"site": str(SITE), "labels": {"region": "eu", "tier": "test"}}, read_marker),
    "rollout": (a_rollout_file(), lambda content: parse_rollout(content, f"rollouts/{ID}.yaml")),
}


def places(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    yield way
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*way, key))


def with_value(data: dict[str, Any], way: tuple[Any, ...], raw: str) -> bytes:
    """The document with YAML text, as a person may write it, in the place of one value."""
    if not way:
        return raw.encode(errors="surrogatepass")
    changed = deepcopy(data)
    inner = changed
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = PLACE
    text = yaml.safe_dump(changed, sort_keys=False, width=10_000)
    return text.replace(PLACE, raw, 1).encode(errors="surrogatepass")


# fmt: off
NASTY = st.sampled_from(
    [
        "9" * 400, "-" + "9" * 400, "9" * 5000, "1" + ":59" * 50, "1" + ":59" * 2000, "0x" + "f" * 300, "1e400",
        "-1e-400", ".inf", ".nan", "9223372036854775807", "9223372036854775808", "-0", "0", "~", "", "true", "''",
        '"\\0"', '"\\ud800"', "2024-13-45", "²", "٣", "9" * 400 + "m0s", "1" * 5000 + "m0s", "999999m999999s",
        "!!python/name:os.system", "!!binary aGk=", "!!set {a}", "*gone", "&a [*a]", "&a {b: *a}", "999999w", "<<",
        "'" + "a=b," * 60_000 + "'", "'" + "x" * 300_000 + "'", "[" * 70 + "]" * 70, '"^(a+)+$"', '"(?=a)b"', '"["',
        "{" + ", ".join(f"k{number}: 1" for number in range(2000)) + "}", '"(.{0,1000}){0,1000}"', "{<<: {a: 1}}",
        "'" + "9" * 400 + "Gi'", "'99999999999w'", "? [1] : 2",
    ]
)
# fmt: on
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
STRUCTURES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
)
RAW = NASTY | STRUCTURES.map(json.dumps) | st.text(max_size=40)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_each_document_is_good_before_it_is_spoilt(kind: str) -> None:
    document, read = DOCUMENTS[kind]
    read(yaml.safe_dump(document).encode())


@pytest.mark.parametrize("kind", DOCUMENTS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused_and_is_never_a_fault_of_ours(
    kind: str, data: st.DataObject
) -> None:
    document, read = DOCUMENTS[kind]
    content = with_value(document, data.draw(st.sampled_from(list(places(document)))), data.draw(RAW))
    try:
        read(content)
    except InvalidInput as error:
        assert error.problems
        assert not [problem for problem in error.problems if "fault in Homeport" in problem.message]
        assert len(str(error)) < 25_000
    except PermanentError:
        pass


@pytest.mark.parametrize("kind", ["deployment", "rollout"])
def test_a_text_without_end_is_refused_wherever_events_may_quote_it(kind: str) -> None:
    document, read = DOCUMENTS[kind]
    accepted = []
    for way in places(document):
        if "parameters" not in way and isinstance(reduce(lambda value, key: value[key], way, document), str):
            with suppress(PermanentError):
                read(with_value(document, way, "x" * 10_000))
                accepted.append(way)
    assert accepted == []


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_bad_file_leaves_its_neighbours_in_the_snapshot_alone(data: st.DataObject) -> None:
    document, _ = DOCUMENTS["deployment"]
    content = with_value(document, data.draw(st.sampled_from(list(places(document)))), data.draw(RAW))
    path, text = deployment_file(site=SITE, name="neighbour")
    neighbour = TreeFile(path, text.encode())
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(PATH, content), neighbour], {})
    assert text.encode() in snapshot.contents.values()
    assert snapshot.present == {ID, path.rsplit("/", 1)[1].removesuffix(".yaml")}


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_bad_marker_makes_a_broken_source_and_nothing_else(data: st.DataObject) -> None:
    document, _ = DOCUMENTS["marker"]
    content = with_value(document, data.draw(st.sampled_from(list(places(document)))), data.draw(RAW))
    path, text = deployment_file(site=SITE)
    try:
        snapshot = read_snapshot(SITE, COMMIT, [replace(MARKER, content=content), TreeFile(path, text.encode())], {})
    except BrokenSource:
        return
    assert len(snapshot.desired) == 1
