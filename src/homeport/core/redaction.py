"""Redacts addresses before they are shown: the URL of a repository may contain a password or a token."""

import re
from typing import Final

_CREDENTIALS: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<userinfo>[^/\s@'\"]+)@", re.IGNORECASE)
_QUERY: Final = re.compile(r"(?P<url>https?://[^\s?'\"]+)\?[^\s'\"]+", re.IGNORECASE)


def redact(text: str) -> str:
    """The text without the passwords and tokens of any URL in it."""
    return _QUERY.sub(r"\g<url>?***", _CREDENTIALS.sub(_without_secret, text))


def _without_secret(match: re.Match[str]) -> str:
    scheme, userinfo = match["scheme"], match["userinfo"]
    if scheme.lower() == "ssh://" and ":" not in userinfo:
        return match[0]  # a user name over ssh is not secret, but over http it may be a token
    return f"{scheme}***@"
