"""Model references: what each kind means, and what is refused."""

import pytest

from homeport.core.inference.models.references import (
    Scheme,
    check_digest,
    check_model_id,
    default_model_id,
    parse_reference,
)
from homeport.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "scheme", "place", "path", "revision"),
    [
        ("hf:org/repo", Scheme.HF, "org/repo", "", ""),
        ("hf:org/repo/a/b.gguf", Scheme.HF, "org/repo", "a/b.gguf", ""),
        ("hf:org/repo/b.gguf@v1.0", Scheme.HF, "org/repo", "b.gguf", "v1.0"),
        ("file:/models/x.gguf", Scheme.FILE, "/models", "/models/x.gguf", ""),
        ("file:///models/x.gguf", Scheme.FILE, "/models", "/models/x.gguf", ""),
        ("./x.gguf", Scheme.FILE, ".", "./x.gguf", ""),
        ("x.gguf", Scheme.FILE, "", "x.gguf", ""),
        ("https://host:8443/a/x.gguf?sig=1", Scheme.HTTPS, "https://host:8443", "/a/x.gguf?sig=1", ""),
        ("http://127.0.0.1:80/x.gguf", Scheme.HTTPS, "http://127.0.0.1:80", "/x.gguf", ""),
        ("s3://bucket/a/x.gguf", Scheme.S3, "bucket", "a/x.gguf", ""),
        ("oci://host:5000/models/x:1.0", Scheme.OCI, "host:5000/models/x", "", "1.0"),
        ("oci://host/models/x", Scheme.OCI, "host/models/x", "", "latest"),
        ("oci://host/x@sha256:" + "a" * 64, Scheme.OCI, "host/x", "", "sha256:" + "a" * 64),
    ],
)
def test_each_kind_is_read(text: str, scheme: Scheme, place: str, path: str, revision: str) -> None:
    found = parse_reference(text)
    assert (found.scheme, found.place, found.path, found.revision) == (scheme, place, path, revision)
    assert parse_reference(found.text) == found, "its own text means the same"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://host/x",
        "hf:org",
        "hf:org/repo/../../etc/passwd",
        "hf:org/repo//x",
        "http://example.com/x.gguf",
        "https://user:password@host/x",
        "https://host",
        "s3://bucket/../x",
        "s3:bucket/x",
        "oci://host",
        "oci://host/UPPER",
        "file:",
        "x" * 3000,
        "hf:org/repo/\x1b[2J",
    ],
)
def test_what_is_no_reference_is_refused_with_the_field_and_examples(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_reference(text)
    assert refused.value.problems[0].field == "model_ref"
    assert "hf:org/repo/file.gguf" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/models/TinyLlama-1.1B.Q4_K_M.gguf", "tinyllama-1.1b.q4_k_m"),
        ("hf:org/repo/big-00001-of-00005.gguf", "big"),
        ("https://host/x.gguf?token=abc", "x"),
        ("oci://host/models/x:1.0", "x"),
        ("/models/ü.gguf", "model"),
    ],
)
def test_a_model_is_called_like_its_file(text: str, name: str) -> None:
    assert default_model_id(parse_reference(text)) == name


@pytest.mark.parametrize("text", ["../x", "a/b", "", ".hidden", "a..b", "x" * 129])
def test_an_id_that_could_leave_a_folder_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        check_model_id(text)


def test_a_digest_has_one_form() -> None:
    assert check_digest("sha256:" + "0" * 64)
    with pytest.raises(InvalidInput):
        check_digest("md5:abc")
