"""Entries of the catalog: trust, verification, and an index that survives bad entries."""

from typing import Any

import pytest

from homeport.core.inference.models.entries import (
    ModelEntry,
    TrustPolicy,
    UntrustedArtifact,
    Verification,
    index_data,
    judge_trust,
    new_entry,
    read_index,
    verdict,
)
from homeport.errors import InvalidInput

DIGEST = "sha256:" + "a" * 64
ENTRY = new_entry(model_id="m", source="hf:org/repo/x.gguf", digest=DIGEST, tags=["small"])
SIGNED: tuple[dict[str, Any], ...] = ({"signer": "us", "verified": True},)


def test_an_index_is_read_as_it_was_written() -> None:
    assert read_index(index_data({"m": ENTRY})) == ({"m": ENTRY}, ())


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "x",
        {"id": "../x"},
        {"id": "x", "digest": "md5:1"},
        {"id": "x", "state": "Maybe"},
        {"id": "x", "local_path": "/etc/passwd"},
        {"id": "x", "local_path": "blobs/../../x"},
    ],
)
def test_one_bad_entry_harms_itself_alone(bad: Any) -> None:
    data = index_data({"m": ENTRY})
    entries, problems = read_index({**data, "models": [bad, *data["models"]]})
    assert entries == {"m": ENTRY}
    assert "entry 0" in problems[0]


@pytest.mark.parametrize("data", [[], {}, {"models": {}}, {"schema": 99, "models": []}])
def test_an_index_of_another_kind_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput):
        read_index(data)


def test_verification_passes_fails_or_warns() -> None:
    assert verdict(DIGEST, DIGEST) is Verification.PASSED
    assert verdict(DIGEST, None) is Verification.FAILED
    assert verdict(DIGEST, "sha256:" + "b" * 64) is Verification.FAILED
    assert verdict("", DIGEST) is Verification.UNCHECKED


@pytest.mark.parametrize(
    ("entry", "policy", "is_trusted"),
    [
        (ENTRY, TrustPolicy(), True),
        (ENTRY, TrustPolicy(is_strict=True), False),
        (ModelEntry(id="m", source="", signatures=SIGNED), TrustPolicy(is_strict=True), True),
        (ENTRY, TrustPolicy(require_sbom=True), False),
        (ENTRY, TrustPolicy(allowed_registries=("hf",)), True),
        (ENTRY, TrustPolicy(allowed_registries=("registry.example",)), False),
        (
            new_entry(model_id="m", source="oci://registry.example/x:1", digest=""),
            TrustPolicy(allowed_registries=("registry.example",)),
            True,
        ),
    ],
)
def test_the_trust_policy_decides(entry: ModelEntry, policy: TrustPolicy, is_trusted: bool) -> None:
    if is_trusted:
        judge_trust(entry, policy)
        return
    with pytest.raises(UntrustedArtifact):
        judge_trust(entry, policy)
