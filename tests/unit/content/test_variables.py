"""Which variables a compose file has, what they are without anybody's doing, and which of them must be given."""

from typing import Any

import pytest

from homeport.content.importing.compose import undefined
from homeport.content.importing.compose_files import read_compose
from homeport.content.importing.parameters import Offered, render_parameters
from homeport.content.importing.variables import (
    VariableReference,
    looks_secret,
    offered,
    parse_dotenv,
    references,
    uses,
)
from homeport.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nginx:1.25", []),
        ("nginx:${TAG}", [VariableReference("TAG")]),
        ("nginx:$TAG-alpine", [VariableReference("TAG")]),
        ("${HOST}:${PORT:-8080}:80", [VariableReference("HOST"), VariableReference("PORT", ":-", "8080")]),
        ("${A-}", [VariableReference("A", "-", "")]),
        ("${KEY:?give a key}", [VariableReference("KEY", ":?", "give a key")]),
        ("${KEY?}", [VariableReference("KEY", "?", "")]),
        ("${DEBUG:+--verbose}", [VariableReference("DEBUG", ":+", "--verbose")]),
        ("${A:-${B:-c}}", [VariableReference("A", ":-", "${B:-c}"), VariableReference("B", ":-", "c")]),
        ("$${NOT} and $5 and $", []),
        ("${broken", [VariableReference("broken")]),
        ("${}", []),
    ],
)
def test_references_are_those_of_the_compose_specification(text: str, found: list[VariableReference]) -> None:
    assert list(references(text)) == found


@pytest.mark.parametrize("text", ["${A:-" * 3000 + "x" + "}" * 3000, "${A:-" * 100_000])
def test_defaults_that_are_nested_without_end_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="more than 20 deep"):
        list(references(text))


def offer(yaml: str, **dotenv: str) -> dict[str, Offered]:
    content = read_compose(yaml.encode(), "compose.yaml").content
    return {each.name: each for each in offered(list(uses(content)), dotenv)}


def service(text: str, **dotenv: str) -> dict[str, Offered]:
    return offer(f"services: {{web: {{image: nginx, {text}}}}}", **dotenv)


@pytest.mark.parametrize(
    ("text", "dotenv", "kind", "default", "is_required"),
    [
        # how it is written                           .env            type       default    must be given
        ("ports: ['${PORT:-8080}:80']",               {},             "integer", 8080,      False),
        ("ports: ['${PORT}:80']",                     {},             "integer", None,      True),
        ("ports: ['${PORT}:80']",                     {"PORT": "81"}, "integer", 81,        True),
        ("ports: ['${BIND:-127.0.0.1:80}:80']",       {},             "string",  "127.0.0.1:80", False),
        ("ports: [{target: 80, published: '${P:-1}'}]", {},           "integer", 1,         False),
        ("environment: {DEBUG: '${DEBUG:-false}'}",   {},             "boolean", False,     False),
        ("environment: {X: '${WORKERS:-4}'}",         {},             "integer", 4,         False),
        ("environment: {X: '${PASSWORD:-123456}'}",   {},             "string",  "123456",  False),
        ("environment: {X: '${LEVEL:-1.10}'}",        {},             "string",  "1.10",    False),
        ("environment: {X: '${ZIP_SIZE:-007}'}",      {},             "string",  "007",     False),
        ("environment: ['X=${NAME:-a b}']",           {},             "string",  "a b",     False),
        ("environment: [TOKEN]",                      {},             "string",  None,      False),
        ("environment: {TOKEN: }",                    {},             "string",  None,      False),
        ("environment: {TOKEN: }",                    {"TOKEN": "t"}, "string",  "t",       False),
        ("environment: {X: '${KEY:?needed}'}",        {},             "string",  None,      True),
        ("environment: {X: '${EMPTY}'}",              {"EMPTY": ""},  "string",  "",        False),
        ("environment: {X: '${FLAG:+on}'}",           {},             "string",  None,      False),
        ("environment: {X: '${BLANK:-}'}",            {},             "string",  None,      False),
    ],
)  # fmt: skip
def test_a_variable_becomes_a_typed_parameter(
    text: str, dotenv: dict[str, str], kind: str, default: Any, is_required: bool
) -> None:
    (only,) = service(text, **dotenv).values()
    assert (only.data_type, only.default, only.is_required) == (kind, default, is_required)


def test_a_tag_stays_text_whatever_it_looks_like() -> None:
    found = offer("services: {web: {image: 'nginx:${PORT:-3}'}}")
    assert found["PORT"].data_type == "string"


def test_uses_that_disagree_on_the_default_keep_their_own() -> None:
    found = service("environment: {A: '${X:-1}', B: '${X:-2}'}")
    assert (found["X"].default, found["X"].is_required) == (None, False)


def test_a_default_made_of_another_variable_is_the_compose_tools_business() -> None:
    found = service("environment: {A: '${X:-${Y:-z}}'}")
    assert (found["X"].default, found["Y"].default) == (None, "z")


def test_the_text_of_a_needed_variable_describes_it() -> None:
    assert service("environment: {A: '${KEY:?the key of the door}'}")["KEY"].description == "the key of the door"
    assert service("environment: {A: '${KEY:-1}'}")["KEY"].description == "Used by web."


def test_comments_and_keys_have_no_variables() -> None:
    assert offer("services:\n  web:\n    image: nginx  # ${OLD}\n") == {}


def test_undefined_variables_are_named_where_they_are_used_first() -> None:
    text = "services:\n  web:\n    image: nginx:${TAG}\n    environment:\n      - A=${TAG}\n      - B=${HOME_DIR}\n"
    file = read_compose(text.encode(), "compose.yaml")
    found = undefined([file], offered(list(uses(file.content)), {}), {"HOME_DIR": "x"})
    assert [(each.path, each.line, each.field) for each in found.values()] == [
        ("compose.yaml", 3, "services.web.image")
    ]
    assert "--set TAG=…" in found["TAG"].message


def test_the_words_of_an_obligatory_variable_are_said_when_it_has_no_value() -> None:
    file = read_compose(b"services:\n  web:\n    image: nginx:${TAG:?which release}\n", "compose.yaml")
    found = undefined([file], offered(list(uses(file.content)), {}), {})
    assert found["TAG"].message.startswith(
        "uses ${TAG}, which has no value (which release): give it with  --set TAG=…"
    )


def test_settings_and_rules_let_a_form_be_drawn() -> None:
    rendered = render_parameters([*service("ports: ['${PORT:-8080}:80']").values()], "shop")
    assert rendered["parameters"] == {
        "PORT": {"value": 8080, "targets": [{"pointer": "PORT", "components": ["shop"]}]}
    }
    assert rendered["configuration"]["schema"] == [
        {"name": "PORT", "dataType": "integer", "allowEmpty": True, "minValue": 1, "maxValue": 65535}
    ]
    assert render_parameters([], "shop") == {}


def test_dotenv_is_read_as_compose_reads_it() -> None:
    text = "# no\nA=1\nexport B = two words\nC='single # kept'\nD=\"double\" # gone\nE=value # gone\nnot a line\nF=\n"
    assert parse_dotenv(text) == {
        "A": "1", "B": "two words", "C": "single # kept", "D": "double", "E": "value", "F": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("DB_PASSWORD", True),
        ("API_KEY", True),
        ("SECRET", True),
        ("GITHUB_TOKEN", True),
        ("PORT", False),
        ("KEYS", False),
    ],
)
def test_what_looks_like_a_secret(name: str, is_secret: bool) -> None:
    assert looks_secret(name) is is_secret
