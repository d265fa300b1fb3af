"""Where a repository is, and how that is said to people.

A URL reaches us from settings and from the API, and `git` would run a program for some of them (`ext::`), take
others for options (`-u…`). Only the transports that people use pass here. A URL may hold a password or a token;
only `git` itself is told those, through the clone's own configuration.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from homeport.errors import InvalidInput

SCHEMES = ("file", "http", "https", "ssh", "git")
ALLOWED = "Use a path, or a URL with http://, https://, ssh://, git:// or file://, or user@host:path."

_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<userinfo>[^/\s@'\"]+)@", re.IGNORECASE)
_QUERY = re.compile(r"(?P<url>https?://[^\s?'\"]+)\?[^\s'\"]+", re.IGNORECASE)
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^@/:]+|\[[0-9a-fA-F:.]+\]):(?P<path>[^:].*)")


@dataclass(frozen=True, slots=True)
class Address:
    """`url` is for git alone; `shown` is the same without its secrets; `folder` is set where it is a local path."""

    url: str
    shown: str
    folder: Path | None = None


def parse_address(url: str) -> Address:
    """Raises InvalidInput for what is no address, or one that would run a program."""
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
    folder = Path(url).expanduser().absolute()
    return Address(str(folder), str(folder), folder)


def redact(text: str) -> str:
    """The text without the passwords and tokens of any URL in it."""
    return _QUERY.sub(r"\g<url>?***", _CREDENTIALS.sub(_without_secret, text))


def _without_secret(match: re.Match[str]) -> str:
    scheme, userinfo = match["scheme"], match["userinfo"]
    if scheme.lower() == "ssh://" and ":" not in userinfo:
        return match[0]  # a user name over ssh is no secret, while over http it may be a token
    return f"{scheme}***@"


def _from_url(url: str) -> Address:
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
    return Address(url, redact(url))


def _from_file_url(url: str, parts: SplitResult) -> Address:
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise InvalidInput(f'"{redact(url)}" is not a local file URL.', hint="Write file:// and an absolute path.")
    folder = Path(unquote(parts.path))
    return Address(url, url, folder)


def _from_scp_like(url: str) -> Address:
    match = _SCP_LIKE.fullmatch(url)
    if match is None or any((match[name] or "").startswith("-") for name in ("user", "host", "path")):
        raise InvalidInput(f'"{redact(url)}" is not a Git address.', hint=ALLOWED)
    return Address(url, url)
