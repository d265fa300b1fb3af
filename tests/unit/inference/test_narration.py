"""Decisions are narrated with all the fields of the contract: actor, action, target and a sentence for people."""

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.cli.roles.logs import JsonFormatter, TextFormatter
from homeport.log import fields_of, get_log

PACKAGE = Path(__file__).parents[3] / "src" / "homeport"
SENTENCE_LENGTH_MAX = 100


def calls() -> Iterator[tuple[str, str, dict[str, ast.expr]]]:
    """Of every log line around inference: where it is, how it is written, and with which fields."""
    for path in sorted([*(PACKAGE / "inference").rglob("*.py"), *(PACKAGE / "models").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "log":
                fields = {each.arg: each.value for each in node.keywords if each.arg}
                yield f"{path.name}:{node.lineno}", node.func.attr, fields


def test_what_is_a_decision_is_narrated_with_every_field() -> None:
    """`narrate` asks for all of them; a plain line may have none of them alone."""
    plain = [where for where, how, fields in calls() if how != "narrate" and {"action", "human", "actor"} & {*fields}]
    assert plain == []
    assert sum(how == "narrate" for _, how, _ in calls()) > 10


def test_sentences_are_short_and_whole() -> None:
    texts = [
        node.value
        for _, how, fields in calls()
        if how == "narrate" and "human" in fields
        for node in ast.walk(fields["human"])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert texts
    for text in texts:
        assert len(text) <= SENTENCE_LENGTH_MAX, text
        assert text[0].isupper() and text.endswith("."), text


def test_a_narrated_line_has_its_fields_and_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="homeport.test")
    get_log("homeport.test").narrate(
        "pool drained", actor="pools", action="drain", target="tiny", human="It ends.", level=logging.WARNING, count=1
    )
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "pool drained")
    said = {"actor": "pools", "action": "drain", "target": "tiny", "human": "It ends.", "count": 1}
    assert fields_of(record) == said
    assert json.loads(JsonFormatter().format(record))["human"] == "It ends."
    assert 'human="It ends."' in TextFormatter().format(record)
