"""A pipeline's file: what is wrong with one is said with field and line."""

import pytest

from homeport.catalog.pipeline import parse_pipeline, pipeline_schema
from homeport.core.pipelines.model import After, Missed, StepKind
from homeport.errors import InvalidInput, PermanentError

WHOLE = b"""
name: report
site: home
inputs:
  cameras: {type: list, default: [a]}
triggers:
  schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, missed: run}
  webhook: {secret: hook-key}
steps:
  ask:
    inference: {model: tiny, prompt: "${{ steps.scan.output[0].text }}"}
    retries: 2
  scan:
    for_each: inputs.cameras
    job: {image: "scan:1", command: ["${{ item }}"], secrets: {KEY: camera-key}}
  tell:
    after: any
    http: {method: POST, url: "https://example.org/x", json: {text: "${{ steps.ask.output.text }}"}}
  more:
    pipeline: {name: other, inputs: {a: "${{ steps.scan.state }}"}}
outputs: {text: "${{ steps.ask.output.text }}"}
"""


def test_a_file_becomes_a_pipeline_whose_steps_come_after_what_they_need() -> None:
    found = parse_pipeline(WHOLE, "report.yaml")
    assert [step.name for step in found.steps] == ["scan", "ask", "more", "tell"]
    assert (found.step("ask").needs, found.step("ask").kind) == (("scan",), StepKind.INFERENCE)
    assert found.step("tell").after is After.ANY
    assert found.schedule is not None
    assert found.schedule.missed is Missed.RUN


ONE = "\nsteps: {a: {job: {image: x}}}"
AROUND = "name: p\nsteps:\n  a: {needs: [b], job: {image: x}}\n  b: {needs: [a], job: {image: x}}"
LACKING = "name: p\ninputs: {n: {type: number}}\ntriggers: {schedule: {cron: '@daily'}}"
STEP = "name: p\nsteps:\n  a: {job: {image: x}}\n  b: "


@pytest.mark.parametrize(
    ("source", "field", "words", "line"),
    [
        (AROUND, "steps.a.needs", "cycle", 3),
        (STEP + "{if: 'steps.b.state', job: {image: x}}", "steps.b.if", "its own step", 4),
        (STEP + "{if: '1 +', job: {image: x}}", "steps.b.if", "not an expression", 4),
        (STEP + "{needs: [aa], job: {image: x}}", "steps.b.needs[0]", 'Did you mean "a"', 4),
        (STEP + "{job: {image: '${{ steps.c.output }}'}}", "steps.b.job.image", 'the step "c"', 4),
        (STEP + "{job: {image: '${{ inputs.c }}'}}", "steps.b.job.image", 'the input "c"', 4),
        (STEP + "{job: {image: '${{ item }}'}}", "steps.b.job.image", "for_each", 4),
        (STEP + "{job: {image: '${{ 1'}}", "steps.b.job.image", "without its }}", 4),
        (STEP + "{}", "steps.b", "has none of job, inference, http, pipeline and plugin", 4),
        (STEP + "{plugin: {with: {a: 1}}}", "steps.b.plugin.name", "missing", 4),
        (STEP + "{plugin: {name: '${{ inputs.x }}'}}", "steps.b.plugin.name", "not the name of a plugin", 4),
        (STEP + "{plugin: {name: mine, with: {a: '${{ steps.c.output }}'}}}", "steps.b.plugin.with.a", 'step "c"', 4),
        (STEP + "{job: {image: x}, http: {url: 'http://x.y'}}", "steps.b", "only one of", 4),
        (STEP + "{job: {image: x}, retries: 11}", "steps.b.retries", "at most 10", 4),
        (STEP + "{job: {image: x}, timeout: soon}", "steps.b.timeout", "not a duration", 4),
        (STEP + "{job: {image: x, secrets: {A: b}}}", "steps.b.job.secrets", "name the site", 4),
        (STEP + "{http: {url: 'ftp://x'}}", "steps.b.http.url", "must begin with http", 4),
        (STEP + "{http: {url: 'http://${{ inputs.x }}/'}}", "steps.b.http.url", "must name its host", 4),
        (STEP + "{job: {}}", "steps.b.job", "needs an image or a command", 4),
        (STEP + "{job: {image: x, comand: []}}", "steps.b.job.comand", 'Did you mean "command"', 4),
        ("name: P" + ONE, "name", "lower case", 1),
        ("name: p\nsteps: {a-b: {job: {image: x}}}", "steps.a-b", "not a name for a step", 2),
        ("name: p\nsteps: {}", "steps", "at least one", 2),
        ("name: p\ntriggers: {schedule: {cron: '* *'}}" + ONE, "triggers.schedule.cron", "five fields", 2),
        ("name: p\ntriggers: {webhook: {secret: k}}" + ONE, "triggers.webhook.secret", "site", 2),
        ("name: p\ninputs: {n: {type: number, default: x}}" + ONE, "inputs.n.default", "a number", 2),
        (LACKING + ONE, "triggers.schedule", "lacks", 3),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_field_and_line(source: str, field: str, words: str, line: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_pipeline(source.encode(), "p.yaml")
    (problem, *_) = caught.value.problems
    assert problem.field.startswith(field), problem
    assert words in problem.message, problem
    assert problem.line == line


HOSTILE = [b"x" * 300_000, b"[]", b"\xff", b"a: &a [*a]", b"name: p\nsteps: {" + b"a: {" * 80]


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(PermanentError):
        parse_pipeline(content, "p.yaml")


def test_the_schema_is_one_and_describes_every_field_for_editors() -> None:
    schema = pipeline_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert set(StepKind) <= schema["$defs"]["step"]["properties"].keys()


def test_a_file_with_very_many_expressions_is_refused_before_they_are_read() -> None:
    words = ", ".join(["'${{ 1 }}'"] * 1_001)
    with pytest.raises(InvalidInput, match="more than 1000 expressions"):
        parse_pipeline(f"name: p\nsteps:\n  a: {{job: {{command: [{words}]}}}}\n".encode(), "p.yaml")
