"""`homeport models` and `engines`: what is wrong is said at once, and changes nothing."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Machine, machine, start_up


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("models")) as started:
        start_up(started, runtime="null")
        yield started


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("models", "serve", "nope"), 3, 'There is no model "nope" in the catalog'),
        (("models", "pull", "nope"), 3, 'There is no model "nope" in the catalog'),
        (("models", "serve", "./x.gguf", "--digest", "sha256:1"), 1, "sha256: and 64"),
        (("pools", "drain", "nope"), 3, "List them:  homeport pools list"),
        (("models", "serve", "./nope.gguf"), 3, "There is no file"),
        (("models", "add", "ftp://x"), 1, "is not a kind of model reference"),
        (("models", "add", "hf:o/r/x.gguf", "--strict"), 1, "no signature that this server could verify"),
        (("models", "serve", "hf:o/r/x.gguf", "--mode", "binary", "--binary", "https://x/y"), 1, "checksum is"),
        (("models", "serve", "hf:o/r/x.gguf", "--mode", "source", "--build", "'x"), 1, "build must be a command"),
        (("engines", "attach", "ollama", "ftp://x", "--model", "y"), 1, "url must be an http"),
        (("engines", "attach", "openai", "http://x", "--model", "y", "--api-key", "sk-1"), 2, "secrets set"),
        (("engines", "plan", "vllm", "org/m", "--mode", "source"), 1, "source is not a mode of vllm"),
        (("chat", "--model", "nope", "hi"), 3, "No model is served"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_before_anything_is_deployed(
    host: Machine, words: tuple[str, ...], code: int, said: str
) -> None:
    done = host.command(*words)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert host.json("deployments", "list")["deployments"] == []


def test_one_plan_is_one_artifact_however_often_it_is_made(host: Machine) -> None:
    plan = ("engines", "plan", "llamacpp", "/models/x.gguf", "--mode", "source", "-o", "json")
    made = [json.loads(host.command(*plan, "--keep").stdout) for _ in range(2)]
    assert made[0] == made[1]
    with urllib.request.urlopen(
        urllib.request.Request(
            f"{host.url}/v2/artifacts/{made[0].pop('artifact_id')}",
            headers={"Authorization": f"Bearer {host.homeport('token').strip()}"},
        )
    ) as answer:
        kept = json.load(answer)
    assert (kept["kind"], kept["tags"], kept["content"]) == ("plan", ["engine:llamacpp"], made[0])
    assert json.loads(host.command(*plan).stdout) == made[0], "without a server it is the same"


def test_a_signature_that_is_none_is_refused(host: Machine, tmp_path: Path) -> None:
    (tmp_path / "x.sig").write_text("not base64!")
    done = host.command("models", "add", "hf:o/r/x.gguf", "--signature", str(tmp_path / "x.sig"))
    assert (done.returncode, "is not a signature in base64" in done.stderr) == (1, True), done.stderr
