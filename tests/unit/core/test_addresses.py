"""Which addresses are this very machine: one table, for everything that trusts them."""

import pytest

from homeport.core.values.addresses import git_host, host_of, is_host, is_loopback, is_private

TABLE = {
    "127.0.0.1": True,
    "127.8.8.8": True,
    "::1": True,
    "[::1]": True,
    "::1%lo": True,
    "::ffff:127.0.0.1": True,
    "localhost": True,
    "LOCALHOST": True,
    "localhost.": True,
    "ip6-localhost": True,
    "x.localhost": False,
    "localhost.localdomain": False,
    "localhost.example": False,
    "127.0.0.1.example": False,
    "127.1": False,
    "0x7f.0.0.1": False,
    "2130706433": False,
    "0.0.0.0": False,
    "::": False,
    "::ffff:10.0.0.1": False,
    "[127.0.0.1": False,
    "]::1[": False,
    "127.0.0.1:80": False,
    "": False,
    "10.0.0.1": False,
}


@pytest.mark.parametrize(("host", "expected"), TABLE.items())
def test_each_host_is_loopback_or_not(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("registry.example", "registry.example"),
        ("registry.example:5000", "registry.example"),
        ("127.0.0.1:5000", "127.0.0.1"),
        ("[::1]:5000", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("host:²", "host:²"),
        ("host:", "host:"),
    ],
)
def test_the_port_is_taken_from_an_authority(authority: str, host: str) -> None:
    assert host_of(authority) == host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("homeport.example", True),
        ("*.example", True),
        ("localhost", True),
        ("192.0.2.7", True),
        ("2001:db8::7", True),
        ("homeport.example:8443", False),
        ("[2001:db8::7]", False),
        ("https://homeport.example", False),
        ("a/b", False),
        ("", False),
        ("-x", False),
    ],
)
def test_a_host_is_what_a_certificate_can_name(text: str, expected: bool) -> None:
    assert is_host(text) is expected


@pytest.mark.parametrize(
    ("repository", "host", "private"),
    [
        ("https://github.com/a/b.git", "github.com", False),
        ("https://u:p@github.com:443/a", "github.com", False),
        ("git@github.com:a/b.git", "github.com", False),
        ("ssh://git@[2606:4700::1111]:22/a", "[2606:4700::1111]", False),
        ("https://169.254.169.254/latest", "169.254.169.254", True),
        ("http://10.0.0.1/x", "10.0.0.1", True),
        ("http://127.1/x", "127.1", True),
        ("http://0x7f000001/x", "0x7f000001", True),
        ("https://vault.internal/x", "vault.internal", True),
        ("git@gitserver:x", "gitserver", True),
        ("/srv/apps", None, None),
        ("apps", None, None),
        ("file:///srv/apps", None, None),
    ],
)
def test_the_host_of_a_repository_and_whether_the_internet_has_it(
    repository: str, host: str | None, private: bool | None
) -> None:
    assert git_host(repository) == host
    assert host is None or is_private(host) is private
