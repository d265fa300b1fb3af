"""What engines without a container ask of their machine, and what a node allows whose owner has said nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from homeport.core.inference.engines.demands import engine_demands
from homeport.core.inference.engines.spec import read_engine
from homeport.core.node.permissions import NOTHING, Permission, Permissions, refusal

CHECKSUM = "sha256:" + "a" * 64
LLAMA = {"engine": "llamacpp", "model": "/m.gguf", "device": "cpu"}


def demands(section: Mapping[str, Any], **environment: str) -> Sequence[tuple[Permission, str]]:
    found = engine_demands(read_engine(section, {}), environment)
    return [(each.permission, each.where) for each in found]


@pytest.mark.parametrize(
    "section",
    [
        LLAMA,
        {**LLAMA, "flags": ["--embeddings", "--pooling", "mean", "--threads", "-1"]},
        {**LLAMA, "mode": "binary"},
        {**LLAMA, "mode": "binary", "binary": "llama-server", "flags": ["-ngl", "99", "--batch-size=64"]},
        {**LLAMA, "mode": "container", "flags": ["--log-file", "/x"], "image": "ghcr.io/x/y:1"},
        {"engine": "ollama", "model": "qwen3", "mode": "binary", "device": "cpu"},
        {"engine": "openai", "model_id": "m", "url": "http://127.0.0.1:9000"},
    ],
    ids=lambda section: f"{section['engine']}-{section.get('mode', '')}-{len(section)}",
)
def test_engines_that_the_owner_has_installed_need_no_permission(section: Mapping[str, Any]) -> None:
    assert not demands(section)


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"mode": "binary", "binary": "sh", "flags": ["-c", "id"]}, ["binary: sh", "flags: -c"]),
        ({"mode": "binary", "binary": "/tmp/evil"}, ["binary: /tmp/evil"]),
        (
            {"mode": "binary", "binary": "https://x.example/y", "checksum": CHECKSUM},
            ["binary: https://x.example/y"],
        ),
        (
            {"mode": "source", "repository": "https://x.example/y.git", "revision": "main", "build": "sh -c id"},
            ["mode: source"],
        ),
        ({"mode": "binary", "flags": ["--log-file=/etc/cron.d/x"]}, ["flags: --log-file"]),
        ({"mode": "binary", "flags": ["--threads", "2", "--tools", "all"]}, ["flags: --tools"]),
        ({"flags": ["--model", "/srv/other/private.gguf"]}, ["flags: --model"]),
        ({"flags": ["--mmproj=/p.gguf", "--slots"]}, ["flags: --mmproj"]),
    ],
)
def test_code_that_a_deployment_brings_is_a_native_command(section: Mapping[str, Any], where: list[str]) -> None:
    assert demands({**LLAMA, **section}) == [(Permission.NATIVE_COMMANDS, f"engine: {each}") for each in where]


def test_a_library_to_load_and_an_address_to_listen_on_are_asked_for_too() -> None:
    assert demands(LLAMA, LD_PRELOAD="/x.so") == [(Permission.NATIVE_COMMANDS, "engine: environment: LD_PRELOAD")]
    assert demands({**LLAMA, "flags": ["--host", "0.0.0.0"]}) == [
        (Permission.NATIVE_COMMANDS, "engine: flags: --host"),
        (Permission.HOST_NETWORK, "engine: flags: --host"),
    ]


def test_the_refusal_names_the_option_of_the_node() -> None:
    found = engine_demands(read_engine({**LLAMA, "mode": "binary", "binary": "sh"}, {}), {})
    assert refusal(found, NOTHING) == (
        "This node does not allow engine: binary: sh. Start the node with  --allow native-commands  to permit it."
    )
    assert refusal(found, Permissions(frozenset({Permission.NATIVE_COMMANDS}))) is None
