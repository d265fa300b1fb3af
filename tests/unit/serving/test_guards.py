"""Which addresses are local, and the sentence for those that are not."""

import pytest

from homeport.core.addresses import is_loopback
from homeport.errors import Refused
from homeport.serving.guards import refuse_open_bind


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_local(host: str) -> None:
    assert is_loopback(host)
    refuse_open_bind(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.example.org"])
def test_anything_else_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(Refused) as refused:
        refuse_open_bind(host, option="--http", port=9000)
    assert "without access control" in str(refused.value)
    assert "--http 127.0.0.1:9000" in str(refused.value.hint)
