"""The trust bundle: as SPIFFE and Margo write it, and read with care."""

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from homeport.adapters.identity.bundle import ANCHORS_MAX, SIZE_MAX, decode, encode
from homeport.adapters.identity.keys import PrivateKey
from homeport.core.model.identity import TrustBundle
from homeport.errors import InvalidInput
from tests.support.certificates import DOMAIN, Household, forge, forge_root, rsa_key
from tests.support.vectors import load_json


def document(**changes: Any) -> dict[str, Any]:
    bundle = TrustBundle(DOMAIN, 7, 60, (forge_root().der,))
    return {**json.loads(encode(bundle)), **changes}


def read(content: dict[str, Any]) -> TrustBundle:
    return decode(json.dumps(content).encode(), DOMAIN)


@pytest.mark.parametrize("kind", ["p256", "p384", "ed25519", "rsa"])
def test_what_is_written_fits_the_schema_and_is_read_back(kind: str) -> None:
    keys: dict[str, PrivateKey] = {
        "p256": ec.generate_private_key(ec.SECP256R1()),
        "p384": ec.generate_private_key(ec.SECP384R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "rsa": rsa_key(3072),
    }
    bundle = TrustBundle(DOMAIN, 3, 120, (forge_root(key=keys[kind]).der, forge_root().der))
    content = encode(bundle)
    jsonschema.validate(json.loads(content), load_json("spiffe-bundle.schema"))
    assert decode(content, DOMAIN) == bundle
    key = json.loads(content)["keys"][0]
    assert (key["use"], len(key["x5c"])) == ("x509-svid", 1)
    assert {"p256": "EC", "p384": "EC", "ed25519": "OKP", "rsa": "RSA"}[kind] == key["kty"]


def test_the_authoritys_bundle_fits_the_schema(tmp_path: Path) -> None:
    bundle = Household(tmp_path).authority.bundle()
    jsonschema.validate(json.loads(encode(bundle)), load_json("spiffe-bundle.schema"))


def test_unknown_fields_and_keys_of_other_use_are_passed_over() -> None:
    content = document(future={"a": 1})
    content["keys"][0]["hint"] = "ignored"
    wanted = read(content)
    content["keys"] += [{"use": "jwt-svid", "kty": "EC", "kid": "x"}, {"kty": "RSA"}, "text", None]
    assert read(content) == wanted
    assert len(wanted.anchors) == 1


def test_numbers_that_are_left_out_have_defaults() -> None:
    content = document()
    del content["spiffe_sequence"], content["spiffe_refresh_hint"]
    assert (read(content).sequence, read(content).refresh_hint_seconds) == (0, 300)


def test_an_anchor_named_twice_counts_once() -> None:
    content = document()
    content["keys"] *= 2
    assert len(read(content).anchors) == 1


LEAF = base64.b64encode(forge(forge_root()).der).decode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [{"use": "jwt-svid", "x5c": ["AA=="]}]}',
        b'{"keys": [{"use": "x509-svid"}]}',
        b'{"keys": [{"use": "x509-svid", "x5c": []}]}',
        b'{"keys": [{"use": "x509-svid", "x5c": [7]}]}',
        b'{"keys": [{"use": "x509-svid", "x5c": ["%%%"]}]}',
        b'{"keys": [{"use": "x509-svid", "x5c": ["AAAA"]}]}',
        f'{{"keys": [{{"use": "x509-svid", "x5c": ["{LEAF}"]}}]}}'.encode(),
        json.dumps(document(spiffe_sequence=-1)).encode(),
        json.dumps(document(spiffe_sequence="9")).encode(),
        json.dumps(document(spiffe_refresh_hint=True)).encode(),
        json.dumps(document(keys=document()["keys"] * (ANCHORS_MAX + 1))).encode(),
        b" " * (SIZE_MAX + 1),
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=range(20),
)
def test_a_bundle_that_names_no_anchor_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode(content, DOMAIN)
