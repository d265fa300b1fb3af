"""The signature of a request to S3, against the example in the documentation of AWS."""

from datetime import UTC, datetime

from homeport.adapters.registry.s3_signing import object_url, signed_headers


def test_the_documented_example_of_reading_an_object_is_signed_alike() -> None:
    made = signed_headers(
        "https://examplebucket.s3.amazonaws.com/test.txt",
        access_key="AKIAIOSFODNN7EXAMPLE",
        secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        region="us-east-1",
        at=datetime(2013, 5, 24, tzinfo=UTC),
        headers={"range": "bytes=0-9"},
    )
    assert made["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    assert "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date," in made["authorization"]


def test_a_key_is_quoted_once_and_keeps_its_folders() -> None:
    assert object_url("https://s3.example", "bucket", "a/b c+d.gguf") == "https://s3.example/bucket/a/b%20c%2Bd.gguf"
