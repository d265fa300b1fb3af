"""Reading margo.yaml: what is right is understood, what is wrong is said in a sentence, all of it at once."""

# ruff: noqa: E501 - a table

from typing import Any

import pytest

from homeport.catalog.description import parse_description
from homeport.core.model.app import Parameter, ParameterTarget, Setting
from homeport.errors import InvalidInput
from homeport.vocabulary import ProfileType
from tests.support.vectors import MARGO, as_yaml, load_json, load_yaml, patched

BASE = load_yaml("description.yaml")
MUTATIONS = [case for case in load_json("mutations")["cases"] if case["base"] == "description.yaml"]
FORMATS = load_json("formats")


def problems(content: bytes) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        parse_description(content, "margo.yaml")
    assert all(problem.path == "margo.yaml" and problem.line for problem in caught.value.problems)
    return {problem.field: problem.message for problem in caught.value.problems}


def changed(path: str, value: Any) -> bytes:
    return as_yaml(patched(BASE, [{"op": "add", "path": path, "value": value}]))


def test_a_description_becomes_an_app() -> None:
    content = (MARGO / "description.yaml").read_bytes()
    description = parse_description(content, "margo.yaml", category="ceramics")
    app = description.app
    assert (app.margo_id, app.name, app.version) == ("example-kiln-monitor", "Kiln monitor", "1.2.1")
    assert (app.category, app.vendor, app.tags) == ("ceramics", "Example Pottery", ("ceramics", "monitoring"))
    assert [profile.type for profile in app.profiles] == [ProfileType.HELM, ProfileType.COMPOSE]
    assert app.profiles[0].device_constraints == BASE["deploymentProfiles"][0]["deviceConstraints"]
    assert app.parameters[3] == Parameter(
        "zones", ("upper", "lower"), (ParameterTarget("ZONES", ("monitor-compose",)),)
    )
    assert app.settings[1] == Setting("operator", "Operator", "requiredText", immutable=True)
    assert description.descriptor == BASE


@pytest.mark.parametrize("case", MUTATIONS, ids=lambda case: str(case["id"]))
def test_the_margo_vectors_are_judged_as_they_say(case: dict[str, Any]) -> None:
    content = as_yaml(patched(BASE, case["patch"]))
    if case["expect"] == "valid":
        parse_description(content, "margo.yaml")
    else:
        assert problems(content)


PROFILE = "/deploymentProfiles/0"
RULE = f"{PROFILE}/deviceConstraints/eligibilityRules/0/propertySelector/matchExpressions/0"
GONE: Any = object()
# fmt: off
BROKEN: list[tuple[str, str, Any, str]] = [
    ("APP-02", "/apiVersion",                                    GONE,            "apiVersion"),
    ("APP-02", "/apiVersion",                                    "v2",            "apiVersion"),
    ("APP-02", "/kind",                                          "X",             "kind"),
    ("APP-04", "/metadata/name",                                 GONE,            "metadata.name"),
    ("APP-04", "/metadata/version",                              GONE,            "metadata.version"),
    ("APP-04", "/metadata/catalog",                              GONE,            "metadata.catalog"),
    ("APP-04", "/metadata/catalog/organization/0/name",          GONE,            "metadata.catalog.organization[0].name"),
    ("APP-05", f"{PROFILE}/type",                                GONE,            "deploymentProfiles[0].type"),
    ("APP-05", f"{PROFILE}/type",                                "wasm",          "deploymentProfiles[0].type"),
    ("APP-05", f"{PROFILE}/id",                                  GONE,            "deploymentProfiles[0].id"),
    ("APP-05", f"{PROFILE}/id",                                  "kiln-compose",  "deploymentProfiles[1].id"),
    ("APP-05", f"{PROFILE}/components",                          GONE,            "deploymentProfiles[0].components"),
    ("APP-05", f"{PROFILE}/components",                          [],              "deploymentProfiles[0].components"),
    ("APP-06", f"{PROFILE}/components/0/name",                   "Store",         "deploymentProfiles[0].components[0].name"),
    ("APP-06", f"{PROFILE}/components/0/name",                   "a_b",           "deploymentProfiles[0].components[0].name"),
    ("APP-06", f"{PROFILE}/components/0/name",                   "monitor",       "deploymentProfiles[0].components[1].name"),
    ("APP-09", "/parameters/mode/targets/0/components",          ["nobody"],      "parameters.mode.targets[0].components[0]"),
    ("APP-10", "/configuration/sections/0/settings/0/parameter", "nobody",        "configuration.sections[0].settings[0].parameter"),
    ("APP-10", "/configuration/sections/0/settings/0/schema",    "none",          "configuration.sections[0].settings[0].schema"),
    ("APP-11", "/configuration/schema/0/dataType",               "text",          "configuration.schema[0].dataType"),
    ("APP-11", "/configuration/schema/0/dataType",               "array[object]", "configuration.schema[0].dataType"),
    ("APP-12", "/configuration/schema/4/options",                [],              "configuration.schema[4].options"),
    ("APP-12", "/configuration/schema/4/options",                GONE,            "configuration.schema[4].multiselect"),
    ("APP-12", "/configuration/schema/4/options/0",              True,            "configuration.schema[4].options[0]"),
    ("APP-15", f"{RULE}/operator",                               "Like",          "operator"),
    ("APP-15", f"{RULE}/values",                                 ["x"],           'must not have "values"'),
    ("APP-15", f"{RULE}/itemSelector",                           GONE,            "itemSelector"),
    ("APP-15", f"{RULE}/itemSelector/matchExpressions/0/itemSelector", {"matchExpressions": [{"key": "/a", "operator": "Exists"}]}, 'must not have "itemSelector"'),
    ("APP-15", f"{RULE}/itemSelector/matchExpressions/0/values", GONE,            "values"),
    ("APP-15", f"{RULE}/itemSelector/matchExpressions/0/values", ["x", 1],        "values"),
    ("APP-15", f"{RULE}/itemSelector/matchExpressions/0/operator", "Exists",      'must not have "values"'),
    ("APP-15", f"{RULE}/itemSelector/matchExpressions/0/operator", "Gt",          "values[0]"),
]
# fmt: on


@pytest.mark.parametrize(("rule", "path", "value", "field"), BROKEN)
def test_each_rule_of_the_checklist_is_judged_by_itself(rule: str, path: str, value: Any, field: str) -> None:
    """One place is wrong, and that place is named, or what it must not have."""
    operation = {"op": "remove", "path": path} if value is GONE else {"op": "add", "path": path, "value": value}
    found = problems(as_yaml(patched(BASE, [operation])))
    named = [f".{place}: {message}" for place, message in found.items()]
    assert any(f".{field}: " in each or field in each.partition(": ")[2] for each in named), (rule, named)
    assert "labelSelector" not in str(named)  # which only a custom profile needs


LABELS = {"matchExpressions": [{"key": "acme.example/loader", "operator": "Exists"}]}
PROPERTIES = {"matchExpressions": [{"key": "/memory", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("constraints", "is_right"),
    [
        (None, False),
        ({}, False),
        ({"capacityRequirements": {"memory": "1Gi"}}, False),
        ({"eligibilityRules": []}, False),
        ({"eligibilityRules": [{"propertySelector": PROPERTIES}]}, False),
        ({"eligibilityRules": [{"labelSelector": LABELS}]}, True),
        ({"eligibilityRules": [{"labelSelector": LABELS, "propertySelector": PROPERTIES}]}, True),
    ],
)
@pytest.mark.parametrize("kind", ["custom", "compose"])
def test_a_custom_profile_needs_a_label_selector(
    constraints: dict[str, Any] | None, is_right: bool, kind: str
) -> None:
    """Whatever else it asks for; other profiles need none. Its artifact is named as an OCI repository."""
    profile = {**BASE["deploymentProfiles"][1], "type": kind, "deviceConstraints": constraints}
    if constraints is None:
        del profile["deviceConstraints"]
    content = changed("/deploymentProfiles/1", profile)
    if is_right or (kind == "compose" and constraints != {"eligibilityRules": []}):
        parse_description(content, "margo.yaml")
    elif kind == "custom":
        assert any(field.startswith("deploymentProfiles[1]") for field in problems(content))
    if kind == "custom" and is_right:
        properties = {"repository": "https://acme.example/x.bin", "revision": "1.0.0"}
        profile["components"] = [{**profile["components"][0], "properties": properties}]
        assert "deploymentProfiles[1].components[0].properties.repository" in problems(
            changed("/deploymentProfiles/1", profile)
        )


@pytest.mark.parametrize("case", FORMATS["revision"], ids=lambda case: str(case["value"]))
def test_revisions_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    content = changed("/deploymentProfiles/1/components/0/properties/revision", case["value"])
    if case["valid"]:
        parse_description(content, "margo.yaml")
    else:
        assert list(problems(content)) == ["deploymentProfiles[1].components[0].properties.revision"]


@pytest.mark.parametrize("case", FORMATS["timeout"], ids=lambda case: str(case["value"]))
def test_timeouts_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    content = changed("/deploymentProfiles/1/components/0/properties/timeout", case["value"])
    if case["valid"]:
        parse_description(content, "margo.yaml")
    else:
        assert "minutes and seconds" in str(problems(content))


@pytest.mark.parametrize("case", FORMATS["applicationId"], ids=lambda case: str(case["value"])[:20])
def test_app_ids_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    content = changed("/id", case["value"])
    if case["valid"]:
        parse_description(content, "margo.yaml")
    else:
        assert list(problems(content)) == ["id"]


@pytest.mark.parametrize("case", FORMATS["extensionKey"], ids=lambda case: str(case["value"]))
@pytest.mark.parametrize("place", ["", "/deploymentProfiles/1", "/deploymentProfiles/1/components/0"])
def test_extension_names_are_judged_as_the_vectors_say(case: dict[str, Any], place: str) -> None:
    content = changed(f"{place}/{case['value']}", {"a": 1})
    if case["valid"]:
        parse_description(content, "margo.yaml")
    else:
        assert problems(content)


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        (
            "/deploymentProfiles/1/components/0/properties/revision",
            "v1.0.0",
            "deploymentProfiles[1].components[0].properties.revision",
            '"v1.0.0" is not a version: leave out the leading v (1.0.0).',
        ),
        (
            "/deploymentProfiles/1/components/0/properties/revision",
            "1.0.0+x",
            "deploymentProfiles[1].components[0].properties.revision",
            '"1.0.0+x" has a +, which registries do not allow: write 1.0.0_x.',
        ),
        (
            "/metadata/version",
            1.1,
            "metadata.version",
            'must be text, but YAML reads 1.1 as a number: put it in quotes ("1.1").',
        ),
        (
            "/parameters/note/targets/0/components",
            ["monitor-compos"],
            "parameters.note.targets[0].components[0]",
            'names "monitor-compos", but the profiles have only "monitor", "monitor-compose" and "store". '
            'Did you mean "monitor-compose"?',
        ),
        (
            "/parameters/note/targets/0/pointer",
            "ENV.NOTE",
            "parameters.note.targets[0].pointer",
            '"ENV.NOTE" is not the name of an environment variable.',
        ),
        (
            "/apiVersion",
            "margo.org/v1-alpha1",
            "apiVersion",
            '"margo.org/v1-alpha1" is from an older Margo version; this is read as Margo 1.0: write "v1".',
        ),
        (
            "/kind",
            "Deployment",
            "kind",
            'says that this is a "Deployment", but a Margo application description is expected, without kind.',
        ),
        (
            "/kind",
            "ApplicationDescription",
            "kind",
            "belongs to an older Margo version: remove this line, and see that apiVersion is v1.",
        ),
        (
            "/deploymentProfiles/0/type",
            "helm.v3",
            "deploymentProfiles[0].type",
            '"helm.v3" is the name from an older Margo version; write "helm".',
        ),
        (
            "/deploymentProfiles/0/type",
            "compse",
            "deploymentProfiles[0].type",
            'must be one of "helm", "compose", "custom", not "compse". Did you mean "compose"?',
        ),
        (
            "/deploymentProfile",
            [],
            "deploymentProfile",
            'is not a field of this document. Did you mean "deploymentProfiles"?',
        ),
        (
            "/metadata/catalog/organization",
            [],
            "metadata.catalog.organization",
            "must have at least one entry.",
        ),
        ("/metadata/name", "", "metadata.name", "must not be empty."),
        (
            "/deploymentProfiles/0/deviceConstraints/capacityRequirements/memory",
            "1024MB",
            "deploymentProfiles[0].deviceConstraints.capacityRequirements.memory",
            '"1024MB" is not an amount of memory: write a whole number and Ki, Mi or Gi, as in 512Mi.',
        ),
        (
            "/configuration/sections/0/settings/0/schema",
            "second",
            "configuration.sections[0].settings[0].schema",
            'there is no schema "second". Did you mean "seconds"?',
        ),
        (
            "/parameters/interval/value",
            7,
            "parameters.interval.value",
            "must be at least 30, not 7. (its schema seconds says integer)",
        ),
        (
            "/configuration/schema/4/options/1",
            5,
            "configuration.schema[4].options[1]",
            "must be text, not 5.",
        ),
        (
            "/configuration/schema/0/regexMatch",
            "[a-",
            "configuration.schema[0].regexMatch",
            "is not a regular expression that RE2 reads: missing ]: [a-.",
        ),
        (
            "/configuration/schema/2/maxValue",
            1,
            "configuration.schema[2].minValue",
            "30 is more than maxValue 1; no value could be right.",
        ),
        (
            "/deploymentProfiles/0/components/1/name",
            "store",
            "deploymentProfiles[0].components[1].name",
            'another component of this profile is called "store" too.',
        ),
        (
            "/parameters/note/value",
            {"a": 1},
            "parameters.note.value",
            "must be text, a number, true or false, or a list of these, not a mapping.",
        ),
        ("/metadata/version", "1.0\n", "metadata.version", '"1.0\n" cannot be the tag of a package in a registry.'),
    ],
)
def test_a_mistake_is_met_with_a_sentence(path: str, value: Any, field: str, message: str) -> None:
    assert problems(changed(path, value))[field] == message


def test_all_problems_are_told_at_once_in_the_order_of_the_lines() -> None:
    content = changed("/metadata/name", 5)
    content = content.replace(b"revision: 2.3.7", b"revision: v2.3.7").replace(b"type: compose", b"type: compos")
    with pytest.raises(InvalidInput) as caught:
        parse_description(content, "margo.yaml")
    lines = [problem.line or 0 for problem in caught.value.problems]
    assert len(lines) == 3
    assert lines == sorted(lines)


def test_a_deployment_in_the_place_of_a_description_gets_one_sentence() -> None:
    found = problems((MARGO / "deployment.yaml").read_bytes())
    assert found == {"spec": "makes this a deployment; a Margo application description is expected."}


@pytest.mark.parametrize("content", [b"just text\n", b"- a\n- b\n", b"5\n", b"~\n"])
def test_a_document_that_is_no_mapping_is_refused(content: bytes) -> None:
    assert "must be a mapping" in problems(content)[""]


def test_a_revision_with_a_line_break_at_its_end_is_refused() -> None:
    assert problems(changed("/deploymentProfiles/1/components/0/properties/revision", "1.0.0\n"))
