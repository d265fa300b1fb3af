"""References to secrets, what they make of a release, and that no value shows."""

import json
from dataclasses import replace

import pytest

from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import (
    MASK,
    SecretsThere,
    SecretValue,
    filled,
    is_name,
    judge_value,
    masked,
    missing,
    missing_values,
    names_in,
    needed,
    plain_environment,
    referenced,
    secret_environment,
    secret_files,
    secret_values,
    versions_for,
)
from homeport.vocabulary import ProfileType
from homeport.wire.nodes import order_from_proto, order_to_proto
from tests.support.orders import a_component, a_release, to_apply

VALUE = "correct horse battery staple"
PART = ComponentSpec(
    "web",
    ProfileType.COMPOSE,
    "oci://registry.example/web",
    "1.0.0",
    environment={"GREETING": "Ahoy", "PASSWORD": "secret://DB", "LICENCE": "secret://LICENCE"},
    extensions={"x-homeport-extensions": {"secrets": {"files": {"/run/secrets/licence": "LICENCE"}}}},
)
VALUES = {"DB": SecretValue(3, VALUE), "LICENCE": SecretValue(1, "key")}


def test_only_a_whole_text_with_the_prefix_is_a_reference() -> None:
    assert referenced("secret://DB") == "DB"
    assert [referenced(value) for value in ("x secret://DB", "DB", 7, True, None, ("secret://DB",))] == [None] * 6
    assert names_in(["secret://A", "plain", "secret://B", 4]) == {"A", "B"}


@pytest.mark.parametrize("name", ["DB", "db-password", "a.b_c", "7", "a" * 128])
def test_a_name_may_be(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "../x", "ä", "a" * 129, "a\n"])
def test_a_name_may_not_be(name: str) -> None:
    assert not is_name(name)


def test_a_value_is_refused_without_being_quoted() -> None:
    for value in ("", "a\0b" + VALUE, "x" * 70_000, "\udc80" + VALUE):
        why = judge_value(value)
        assert why
        assert VALUE not in why
    assert judge_value("many\nlines") is None


def test_a_release_is_filled_with_exactly_what_it_refers_to() -> None:
    release = a_release(PART, a_component("cache"))
    assert needed(release) == {"DB", "LICENCE"}
    assert missing(release, {"DB": 3}) == ("LICENCE",)
    assert versions_for(release, {"DB": 3, "LICENCE": 1, "OTHER": 9}) == {"DB": 3, "LICENCE": 1}
    web, cache = filled(release, {**VALUES, "OTHER": SecretValue(9, "other")}).components
    assert cache == a_component("cache")
    assert web.secrets == {"DB": 3, "LICENCE": 1}
    assert plain_environment(web) == {"GREETING": "Ahoy"}
    assert secret_environment(web) == {"PASSWORD": VALUE}
    assert secret_files(web) == {"/run/secrets/licence": "key"}
    assert missing_values(web) == ()
    assert missing_values(PART) == ("DB", "LICENCE")


def test_the_digest_changes_with_the_version_and_not_with_the_value() -> None:
    (first,) = filled(a_release(PART), VALUES).components
    (other,) = filled(a_release(PART), {**VALUES, "DB": SecretValue(3, "something else")}).components
    (newer,) = filled(a_release(PART), {**VALUES, "DB": SecretValue(4, VALUE)}).components
    assert first.digest == other.digest
    assert first.digest != newer.digest
    assert replace(PART, environment={}).digest == replace(PART, environment={}, secret_values={"X": "y"}).digest


def test_site_and_node_agree_on_the_digest_across_the_wire() -> None:
    order = to_apply(1, PART)
    assert order.release is not None
    order = replace(order, release=filled(order.release, VALUES))
    assert order.release is not None
    heard = order_from_proto(order_to_proto(order))
    assert heard == order
    assert heard.release is not None
    assert heard.release.components[0].digest == order.release.components[0].digest
    assert secret_values(heard.release) == {VALUE, "key"}


def test_no_representation_shows_a_value() -> None:
    order = to_apply(1, PART)
    assert order.release is not None
    order = replace(order, release=filled(order.release, VALUES))
    for shown in (repr(order), str(order), repr(VALUES), repr(SecretsThere({"DB": 3}, VALUES))):
        assert VALUE not in shown


def test_what_a_program_printed_is_masked() -> None:
    assert masked(f"login with {VALUE} failed", [VALUE]) == f"login with {MASK} failed"
    assert masked("the port is in use", ["in", "a"]) == "the port is in use", "short values would spoil every word"
    assert "second line" not in masked("error: second line", ["first line\nsecond line"])


@pytest.mark.parametrize("value", ['p"w\\x1', "pä$$wörd", "two\nlines of it", "a/b/c/d", "tab\there"])
def test_a_secret_is_masked_as_json_writes_it(value: str) -> None:
    for written in (json.dumps({"key": value}), json.dumps({"key": value}, ensure_ascii=False).replace("/", "\\/")):
        shown = masked(written, [value])
        assert MASK in shown
        assert value not in str(json.loads(shown))
