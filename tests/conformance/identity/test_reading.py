"""Whatever bytes arrive as a certificate, a request or a chain: they are read, or refused with InvalidInput."""

import warnings
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.adapters.identity.certificates import read_chain, to_pem, view
from homeport.adapters.identity.keys import csr_spki, make_csr, new_key
from homeport.errors import InvalidInput
from tests.support.certificates import CENTRAL, CLIENT, forge, forge_root

ROOT = forge_root()
LEAF = forge(ROOT, uris=[CLIENT, CENTRAL])
REQUEST = make_csr(new_key(), "n1")
SPOILS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


def spoiled(content: bytes, spoils: list[tuple[int, int]]) -> bytes:
    result = bytearray(content)
    for place, value in spoils:
        result[place % len(result)] = value
    return bytes(result)


def read(reader: Callable[[bytes], object], content: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library warns of odd but readable certificates
        with suppress(InvalidInput):
            reader(content)


@given(SPOILS)
@settings(max_examples=400, deadline=None)
def test_a_spoiled_certificate_is_read_or_refused(spoils: list[tuple[int, int]]) -> None:
    read(view, spoiled(LEAF.der, spoils))


@given(SPOILS)
@settings(max_examples=150, deadline=None)
def test_a_spoiled_request_is_read_or_refused(spoils: list[tuple[int, int]]) -> None:
    read(csr_spki, spoiled(REQUEST, spoils))


@given(SPOILS)
@settings(max_examples=100, deadline=None)
def test_a_spoiled_chain_is_read_or_refused(spoils: list[tuple[int, int]]) -> None:
    read(read_chain, spoiled(to_pem(LEAF.certificate, ROOT.certificate), spoils))


@pytest.mark.parametrize("content", [b"", b"\x00", b"text", b"\x30\x82\xff\xff", LEAF.der[:-1], LEAF.der + b"x"])
def test_what_is_no_certificate_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        view(content)
