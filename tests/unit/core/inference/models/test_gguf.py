"""A model file is judged by its own header."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.core.inference.models.gguf import damage_of, kv_token_bytes
from tests.support.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_model(Path(tmp_path_factory.mktemp("model")) / "tiny.gguf").read_bytes()


def test_a_whole_model_has_no_damage_and_one_byte_less_is_cut_off(whole: bytes) -> None:
    assert damage_of(memoryview(whole)) is None
    assert damage_of(memoryview(whole + b"more")) is None
    assert "is cut off" in (damage_of(memoryview(whole[:-1])) or "")


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_download_that_stopped_anywhere_is_noticed(whole: bytes, share: float) -> None:
    assert "cut off" in (damage_of(memoryview(whole[: 4 + int(share * len(whole))])) or "")


def test_the_cache_of_a_token_follows_from_the_shape_of_the_model(whole: bytes) -> None:
    blocks, heads, size, f16 = 2, 4, 16, 2
    assert kv_token_bytes(memoryview(whole)) == blocks * heads * (size + size) * f16
    for name in (b"GGUF\x03\0\0\0", b"llama.block_count"):
        assert kv_token_bytes(memoryview(whole.replace(name, name[:-1] + b"?"))) is None, name
    assert kv_token_bytes(memoryview(whole.replace(b"llama", b"mamba"))) is None, "it keeps a state instead"


def test_something_else_is_no_model() -> None:
    for content in (b"", b"GGU", b"<!doctype html><title>Not found</title>", b"\0" * 64):
        assert "is not a GGUF model" in (damage_of(memoryview(content)) or "")
    assert "version 9" in (damage_of(memoryview(b"GGUF\x09\0\0\0" + b"\0" * 64)) or "")


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_whatever_follows_the_magic_is_read_without_a_crash(rest: bytes) -> None:
    found = damage_of(memoryview(b"GGUF\x03\0\0\0" + rest))
    assert found is None or found.startswith("is ")
    assert kv_token_bytes(memoryview(b"GGUF\x03\0\0\0" + rest)) is None
