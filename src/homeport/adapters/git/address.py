"""Addresses of repositories: validation, and redaction for messages.

A URL comes from settings or the API, and `git` would run a program for some of them (`ext::`) or treat others as
options (`-u…`). Only the common transports are accepted. A URL may contain a password or a token; those are passed
only to `git` itself, through the clone's own configuration.
"""

import re
import shlex
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from homeport.adapters.files.paths import local_path
from homeport.core.redaction import redact
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

__all__ = ["GitAddress", "parse_address", "redact"]

SCHEMES = ("file", "http", "https", "ssh", "git")
ALLOWED = "Use a path, or a URL with http://, https://, ssh://, git:// or file://, or user@host:path."

_PORTS = {"http": 80, "https": 443, "ssh": 22, "git": 9418}
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^@/:]+|\[[0-9a-fA-F:.]+\]):(?P<path>[^:].*)")


class Remote(NamedTuple):
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class GitAddress:
    """`url` is for git alone; `shown` is the same without its secrets; `folder` is set where it is a local path."""

    url: str
    shown: str
    folder: Path | None = None

    @property
    def remote(self) -> Remote | None:
        if self.folder is not None:
            return None
        if "://" not in self.url:
            found = _SCP_LIKE.fullmatch(self.url)
            return None if found is None else Remote("ssh", found["host"].strip("[]"), _PORTS["ssh"])
        parts = urlsplit(self.url)
        return Remote(parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0))


@dataclass(frozen=True, slots=True)
class PinnedRoute:
    """What has git connect to one IP address, whatever the name resolves to by then."""

    settings: tuple[str, ...] = ()
    """For `git -c`."""
    ssh_options: str = ""


ANYWHERE: Final = PinnedRoute()


def pin_to(address: GitAddress, judged: str) -> PinnedRoute:
    """Keeps git to `judged`, an IP address of the remote's host. TLS and ssh still check the name. A proxy of the
    environment that git asks for http:// and https:// resolves the name by itself: there it was judged, not kept."""
    remote = address.remote
    assert remote is not None, "a folder is not connected to"
    bracketed = f"[{judged}]" if ":" in judged else judged
    match remote.scheme:
        case "http" | "https":
            stays = "http.followRedirects=false"
            if _is_literal(remote.host):
                return PinnedRoute((stays,))  # Nothing is resolved, and curl refuses an entry for an IPv6 address.
            return PinnedRoute((stays, f"http.curloptResolve={remote.host}:{remote.port}:{bracketed}"))
        case "git":
            written = urlsplit(address.url).netloc
            return PinnedRoute((f"url.git://{bracketed}:{remote.port}/.insteadOf=git://{written}/",))
        case _:
            known_as = remote.host if remote.port == _PORTS["ssh"] else f"[{remote.host}]:{remote.port}"
            options = (f"HostName={judged}", f"HostKeyAlias={known_as}")
            # A shell reads them.
            return PinnedRoute(ssh_options=" ".join(f"-o {shlex.quote(option)}" for option in options))


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def parse_address(url: str) -> GitAddress:
    """Raises InvalidInput for an invalid address, or one that would run a program."""
    if not url or any(ord(character) < 32 or ord(character) == 127 for character in url):
        raise InvalidInput("A Git address is empty or holds control characters.", hint=ALLOWED)
    if url.startswith("-"):
        raise InvalidInput(f'The Git address "{url}" begins with a dash.', hint=ALLOWED)
    if "://" in url:
        return _from_url(url)
    if re.match(r"[A-Za-z0-9+.-]*::", url):
        raise InvalidInput("Transport helpers are not allowed in a Git address.", hint=ALLOWED)
    if ":" in url.split("/", 1)[0]:
        return _from_scp_like(url)
    folder = local_path(url, "url")
    return GitAddress(str(folder), str(folder), folder)


def _from_url(url: str) -> GitAddress:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(f'"{redact(url)}" is not a valid URL.', hint=ALLOWED) from error
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f'Git addresses with "{parts.scheme}://" are not allowed.', hint=ALLOWED)
    if parts.scheme == "file":
        return _from_file_url(url, parts)
    if not host or host.startswith("-") or (parts.username or "").startswith("-"):
        raise InvalidInput(f'"{redact(url)}" names no host.', hint=ALLOWED)
    return GitAddress(url, redact(url))


def _from_file_url(url: str, parts: SplitResult) -> GitAddress:
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise InvalidInput(f'"{redact(url)}" is not a local file URL.', hint="Write file:// and an absolute path.")
    folder = local_path(unquote(parts.path), "url")
    return GitAddress(url, url, folder)


def _from_scp_like(url: str) -> GitAddress:
    match = _SCP_LIKE.fullmatch(url)
    if match is None or any((match[name] or "").startswith("-") for name in ("user", "host", "path")):
        raise InvalidInput(f'"{redact(url)}" is not a Git address.', hint=ALLOWED)
    return GitAddress(url, url)
