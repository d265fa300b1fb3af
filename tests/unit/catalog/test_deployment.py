"""Deployment files: what central writes a site reads back, and what a person pushes is judged with file and line."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.catalog.deployment import (
    as_chart_value,
    as_environment,
    asks_the_same,
    deployment_path,
    marker_path,
    parse_deployment,
    render_deployment,
    timeout_seconds,
)
from homeport.catalog.description import parse_description
from homeport.catalog.marker import check_marker, render_marker
from homeport.core.model.app import App, Component, Parameter, ParameterTarget, Profile, Value
from homeport.core.model.deployment import Desired, Placement, Policy, digest_of_bytes
from homeport.core.parameters import check_values
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput
from homeport.vocabulary import DeploymentId, NodeId, PlacementMode, ProfileType, RolloutId, SiteName
from tests.support.vectors import MARGO, as_yaml, load_json, load_yaml, patched

BASE = load_yaml("deployment.yaml")
ID = DeploymentId(BASE["id"])
SITE = SiteName("edge-01")
PATH = deployment_path(SITE, ID)
MUTATIONS = [case for case in load_json("mutations")["cases"] if case["base"] == "deployment.yaml"]
APP = parse_description((MARGO / "description.yaml").read_bytes(), "margo.yaml", category="ceramics").app
COMPOSE = APP.profiles[1]


def problems(content: bytes, path: str = PATH) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        parse_deployment(content, path, SITE)
    assert all(problem.path == path and problem.line for problem in caught.value.problems)
    return {problem.field: problem.message for problem in caught.value.problems}


def changed(path: str, value: Any) -> bytes:
    return as_yaml(patched(BASE, [{"op": "add", "path": path, "value": value}]))


def render(**more: Any) -> bytes:
    values, found = check_values(APP, COMPOSE, {"operator": "Ada"})
    assert not found
    wish: dict[str, Any] = {
        "deployment_id": ID,
        "site": SITE,
        "name": "kiln",
        "app": APP,
        "app_name": "kiln-monitor",
        "profile": COMPOSE,
        "values": values,
    }
    return render_deployment(**(wish | more))


def test_a_file_pushed_by_hand_is_understood() -> None:
    content = (MARGO / "deployment.yaml").read_bytes()
    desired = parse_deployment(content, PATH, SITE)
    assert (desired.id, desired.site, desired.name, desired.namespace) == (ID, SITE, "kiln", "pottery")
    assert (desired.app_name, desired.app_version, desired.profile_type) == ("kiln", "2.3.7", ProfileType.HELM)
    assert desired.revision == desired.release.revision == digest_of_bytes(content)
    store, monitor = desired.release.components
    assert (store.wait, store.timeout_seconds, store.environment) == (True, 510, {"settings.interval": '"120"'})
    assert (monitor.wait, monitor.timeout_seconds) == (False, 300)
    zones = '["upper", 2, true, 0.5]'
    assert monitor.environment == {"operator.name": '"Ada"', "settings.interval": '"120"', "zones": zones}
    assert desired.parameters["zones"] == ("upper", 2, True, 0.5)
    assert (desired.placement.nodes, desired.rollout_id, desired.remove_images) == ((), None, False)


@pytest.mark.parametrize("case", MUTATIONS, ids=lambda case: str(case["id"]))
def test_the_margo_vectors_are_judged_as_they_say(case: dict[str, Any]) -> None:
    content = as_yaml(patched(BASE, case["patch"]))
    if case["expect"] != "valid":
        assert problems(content)
    elif case["id"] == "ds-autonomous-ok":
        # Well-formed, but no site of ours: a site is one opaque device.
        assert list(problems(content)) == ["metadata.deviceId"]
    else:
        parse_deployment(content, PATH, SITE)


@pytest.mark.parametrize("case", load_json("formats")["deploymentDeviceId"], ids=lambda case: str(case["value"]))
def test_device_ids_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    content = changed("/metadata/deviceId", case["value"])
    if case["value"] == SITE:
        parse_deployment(content, PATH, SITE)
    else:
        malformed = "is not a device id" in problems(content)["metadata.deviceId"]
        assert malformed is not case["valid"]


@pytest.mark.parametrize(
    "case", [case for case in load_json("formats")["timeout"] if case["valid"]], ids=lambda case: str(case["value"])
)
def test_timeouts_are_seconds(case: dict[str, Any]) -> None:
    assert timeout_seconds(case["value"]) == case["seconds"]


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        (
            "/id",
            "00000000-0000-4000-8000-000000000000",
            "id",
            f'is "00000000-0000-4000-8000-000000000000", but the file is called {ID}.yaml; the two must be the same.',
        ),
        (
            "/metadata/deviceId",
            "other",
            "metadata.deviceId",
            'is "other", but the file is in the folder of site "edge-01"; the two must be the same.',
        ),
        (
            "/spec/parameters/operator/targets/0/components",
            ["montor"],
            "spec.parameters.operator.targets[0].components[0]",
            'names "montor", but this profile has only "store" and "monitor". Did you mean "monitor"?',
        ),
        (
            "/spec/parameters/operator/value",
            [["deep"]],
            "spec.parameters.operator.value",
            "must be text, a number, true or false, or a list of these.",
        ),
        (
            "/spec/x-homeport-extensions",
            {"app": {"version": 1.1}},
            "spec.x-homeport-extensions.app.version",
            "must be text, not 1.1: put it in quotes.",
        ),
        (
            "/spec/x-homeport-extensions",
            {"placement": {"nodes": "a"}},
            "spec.x-homeport-extensions.placement.nodes",
            "must be a list of node names.",
        ),
        *(
            ("/spec/x-homeport-extensions", {part: {key: value}}, f"spec.x-homeport-extensions.{part}.{key}", message)
            for part, key, value, message in [
                ("placement", "mode", "some", 'must be one of "each", "one" and "count", not some.'),
                ("placement", "mode", "count", "is count, so `count` must say how many nodes."),
                ("placement", "count", 0, "must be a whole number from 1 to 100000, not 0."),
                ("placement", "selector", 7, "must be text, such as gpu,zone=a."),
                (
                    "placement",
                    "selector",
                    "a b",
                    '"a b" cannot be read. Write key=value, key!=value, key, !key or key in (a,b).',
                ),
                ("policy", "retries", -1, "must be a whole number from 0 to 100, not -1."),
                ("policy", "rollback", "no", "must be true or false, not no."),
                ("policy", "deadline", 30, "must be a length of time such as 30s, 5m or 1h, at most 30d, not 30."),
                (
                    "policy",
                    "retry",
                    1,
                    'is not known here; there are "retries", "backoff", "rollback", "deadline" and "onUnhealthy". '
                    'Did you mean "retries"?',
                ),
            ]
        ),
        (
            "/spec/x-homeport-extensions",
            {"app": "hello"},
            "spec.x-homeport-extensions.app",
            "must be a mapping (name: value).",
        ),
        (
            "/kind",
            "Pod",
            "kind",
            'says that this is a "Pod", but a Margo deployment is expected, without kind.',
        ),
        (
            "/apiVersion",
            "application.margo.org/v1alpha1",
            "apiVersion",
            "belongs to an older Margo version; a deployment has neither apiVersion nor kind: remove them.",
        ),
        ("/spec/paramters", {}, "spec.paramters", 'is not a field of this document. Did you mean "parameters"?'),
    ],
)
def test_a_mistake_is_met_with_a_sentence(path: str, value: Any, field: str, message: str) -> None:
    assert problems(changed(path, value))[field] == message


def test_a_pointer_that_is_no_environment_variable_is_refused_for_compose() -> None:
    content = changed("/spec/deploymentProfile/type", "compose")
    assert "spec.parameters.operator.targets[0].pointer" in problems(content)


def test_unknown_extensions_are_ignored() -> None:
    desired = parse_deployment(changed("/spec/x-acme-extensions", {"a": 1}), PATH, SITE)
    assert desired.name == "kiln"


def test_a_description_in_the_place_of_a_deployment_gets_one_sentence() -> None:
    found = problems((MARGO / "description.yaml").read_bytes())
    assert list(found) == ["deploymentProfiles"]


def test_a_rendered_file_is_what_margo_wants() -> None:
    content = render(placement=Placement((NodeId("a"), NodeId("b"))), rollout_id=RolloutId("r-1"), remove_images=True)
    assert content.decode() == EXPECTED
    assert (
        render(placement=Placement((NodeId("a"), NodeId("b"))), rollout_id=RolloutId("r-1"), remove_images=True)
        == content
    )


def test_a_rendered_file_is_read_back_by_its_site() -> None:
    content = render(placement=Placement((NodeId("a"),)), rollout_id=RolloutId("r-1"))
    desired = parse_deployment(content, PATH, SITE)
    assert (desired.app_name, desired.app_category, desired.app_version) == ("kiln-monitor", "ceramics", "1.2.1")
    assert (desired.profile_id, desired.rollout_id, desired.placement.nodes) == ("kiln-compose", "r-1", ("a",))
    assert desired.release.components[0].environment["ZONES"] == "upper,lower"


def test_without_parameters_the_field_is_there_and_empty() -> None:
    app = replace(APP, parameters=(), settings=())
    assert b"\n  parameters: {}\n" in render(app=app, values={})


def test_constraints_and_extensions_are_copied_unchanged() -> None:
    constraints = APP.profiles[0].device_constraints
    extension = {"x-acme-extensions": {"deep": [1, {"a": None}]}}
    component = replace(COMPOSE.components[0], extensions=extension)
    profile = replace(COMPOSE, device_constraints=constraints, extensions=extension, components=(component,))
    desired = parse_deployment(render(profile=profile), PATH, SITE)
    assert desired.device_constraints == constraints
    assert desired.release.components[0].extensions == extension
    assert b"  x-acme-extensions:" in render(profile=profile)


def test_the_rollout_alone_is_no_difference_in_what_is_asked_for() -> None:
    one = parse_deployment(render(rollout_id=RolloutId("r-1")), PATH, SITE)
    other = parse_deployment(render(rollout_id=RolloutId("r-2")), PATH, SITE)
    assert one.revision != other.revision
    assert asks_the_same(one, other)
    assert not asks_the_same(one, parse_deployment(render(placement=Placement((NodeId("a"),))), PATH, SITE))


def test_the_marker_names_its_site() -> None:
    assert marker_path(SITE) == "deployments/edge-01/site.yaml"
    check_marker(render_marker(SITE), marker_path(SITE), SITE)
    check_marker(render_marker(SITE, {"zone": "a"}), marker_path(SITE), SITE)
    for content in (b"site: other\n", b"", b"site: [edge-01]\n", b"edge-01\n", b"site: edge-01\nsite: edge-01\n"):
        with pytest.raises(InvalidInput):
            check_marker(content, marker_path(SITE), SITE)


@pytest.mark.parametrize("name", ["7", "on", "1e3", "0x1f", "2024-01-31", "null"])
def test_a_site_may_have_a_name_that_yaml_reads_as_something_else(name: str) -> None:
    check_marker(render_marker(SiteName(name)), "site.yaml", SiteName(name))
    check_marker(f"site: {name}\n".encode(), "site.yaml", SiteName(name))
    content = render(site=SiteName(name), placement=Placement((NodeId(name),)), name=name)
    desired = parse_deployment(content, deployment_path(SiteName(name), ID), SiteName(name))
    assert (desired.name, desired.placement.nodes) == (name, (name,))


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (7, "7"), (0.5, "0.5"), (("a", 1, True), "a,1,true"), ((), "")],
)
def test_values_become_text_for_an_environment(value: Value, text: str) -> None:
    assert as_environment(value) == text


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True)
SCALARS = TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = SCALARS | st.lists(SCALARS, max_size=3).map(tuple)
VERSIONS = st.from_regex(r"[1-9]\.[0-9]\.[0-9](-rc[1-9])?(_b[1-9])?", fullmatch=True)


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    components = tuple(
        Component(
            name,
            {
                "repository": f"oci://h/{name}",
                "revision": draw(VERSIONS),
                "wait": draw(st.booleans()),
                "timeout": "1m5s",
            },
        )
        for name in names
    )
    profile = Profile(draw(TEXT), draw(st.sampled_from(ProfileType)), components)
    pointers = st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True)
    parameters = tuple(
        Parameter(
            name, None, (ParameterTarget(draw(pointers), tuple(draw(st.sets(st.sampled_from(names), min_size=1)))),)
        )
        for name in draw(st.lists(TEXT, max_size=3, unique=True))
    )
    return {
        "app": App("some-app", "Some", draw(VERSIONS), draw(TEXT), "V", (profile,), parameters),
        "profile": profile,
        "values": {parameter.name: draw(VALUES) for parameter in parameters},
        "name": draw(NAMES),
        "app_name": draw(NAMES),
        "placement": Placement(
            tuple(NodeId(node) for node in draw(st.lists(NAMES, max_size=2))),
            draw(st.sampled_from(PlacementMode)),
            selector=parse_selector(draw(st.sampled_from(["", "gpu", "zone in (a,b),tier!=test"]))),
        ),
        "policy": Policy(
            draw(st.integers(0, 100)), draw(st.integers(1, 10_000)), draw(st.booleans()), draw(st.integers(1, 10_000))
        ),
        "rollout_id": draw(st.none() | NAMES.map(RolloutId)),
    }


@settings(max_examples=50, deadline=None)
@given(wishes())
def test_whatever_is_wished_for_is_read_back(wish: dict[str, Any]) -> None:
    desired: Desired = parse_deployment(render(**wish), PATH, SITE)
    assert desired.parameters == wish["values"]
    assert (desired.placement, desired.policy) == (wish["placement"], wish["policy"])
    assert desired.rollout_id == wish["rollout_id"]
    assert (desired.name, desired.app_name) == (wish["name"], wish["app_name"])
    assert (desired.app_category, desired.app_version) == (wish["app"].category, wish["app"].version)
    assert (desired.profile_id, desired.profile_type) == (wish["profile"].id, wish["profile"].type)
    for component, given_component in zip(desired.release.components, wish["profile"].components, strict=True):
        assert component.name == given_component.name
        assert component.revision == given_component.properties["revision"]
        assert component.wait is given_component.properties["wait"]
        assert component.timeout_seconds == 65
        for parameter in wish["app"].parameters:
            for target in parameter.targets:
                assert (target.pointer in component.environment) or component.name not in target.components


EXPECTED = f"""\
id: {ID}
metadata:
  name: kiln
  namespace: homeport
  deviceId: edge-01
spec:
  applicationId: example-kiln-monitor
  deploymentProfile:
    type: compose
    components:
    - name: monitor-compose
      properties:
        repository: oci://registry.example/compose/monitor
        revision: "1.0.9"
        wait: true
  parameters:
    interval:
      value: 30
      targets:
      - pointer: INTERVAL
        components:
        - monitor-compose
    operator:
      value: Ada
      targets:
      - pointer: OPERATOR
        components:
        - monitor-compose
    zones:
      value:
      - upper
      - lower
      targets:
      - pointer: ZONES
        components:
        - monitor-compose
    mode:
      value: plain
      targets:
      - pointer: MODE
        components:
        - monitor-compose
  x-homeport-extensions:
    app:
      category: ceramics
      name: kiln-monitor
      version: "1.2.1"
    profile: kiln-compose
    rollout: r-1
    removal:
      images: true
    placement:
      nodes:
      - a
      - b
"""


def test_a_chart_is_given_values_as_json_so_that_types_survive() -> None:
    assert as_chart_value(5) == "5"
    assert as_chart_value("5") == '"5"'
    assert as_chart_value(True) == "true"
    assert as_chart_value(("a", "b")) == '["a", "b"]'
    assert as_chart_value("secret://db") == "secret://db"
