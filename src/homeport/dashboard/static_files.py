"""The built page, in memory: only files that are there when central starts are served, each under its own name.

Every page of the dashboard is the same document; its script shows what the address asks for.
"""

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from homeport.lazy_dataclass import dataclass

INDEX: Final = "index.html"
WORKER: Final = "service-worker.js"
"""Shows the page while central does not answer. Its scope is the folder that it is served from."""
WORKER_POLICY: Final = "default-src 'none'; connect-src 'self'"
IMMUTABLE: Final = "_app/immutable/"
"""Names with the digest of their content."""
COMPRESSED: Final = ".gz"
FOREVER: Final = "public, max-age=31536000, immutable"
EACH_TIME: Final = "no-cache"
ANNOUNCER: Final = "'unsafe-hashes' 'sha256-S8qMpvofolR8Mpjy4kQvEm7m1q8clzU4dfDH0AmvZjo='"
"""The one style that SvelteKit sets as an attribute: on the region that tells screen readers of a new page."""
NOT_BUILT: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Homeport</title>
<h1>The dashboard is not built</h1>
<p>This Homeport runs from its source. Build the page with <code>make install</code>, then start it again.</p>
<p>Everything else works: see <a href="/docs">the API</a> and <code>homeport --help</code>.</p></html>"""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    compressed: bytes | None
    media_type: str
    caching: str
    etag: str


@dataclass(frozen=True, slots=True)
class StaticFiles:
    pages: Mapping[str, StaticFile]
    """By name below the root."""
    policy: str
    """The Content-Security-Policy of the document."""


@cache
def load() -> StaticFiles:
    """Read once, when the first page is asked for."""
    found: dict[str, bytes] = {}
    _collect(files("homeport.dashboard").joinpath("static"), "", found)
    index = found.setdefault(INDEX, NOT_BUILT)
    pages = {
        name: _file(name, content, found.get(name + COMPRESSED))
        for name, content in found.items()
        if not name.endswith((COMPRESSED, ".br"))
    }
    return StaticFiles(pages, content_policy(index.decode()))


def content_policy(document: str) -> str:
    """Only this server, and only the scripts that the build put into the document."""
    scripts = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", document, re.DOTALL)
    hashes = "".join(f" 'sha256-{_digest(script)}'" for script in scripts)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self'{hashes}",
            "style-src 'self'",
            f"style-src-attr {ANNOUNCER}",
            "img-src 'self' data:",
            "connect-src 'self'",
            "manifest-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _collect(folder: Traversable, prefix: str, found: dict[str, bytes]) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
        else:
            found[prefix + entry.name] = entry.read_bytes()


def _file(name: str, content: bytes, compressed: bytes | None) -> StaticFile:
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if media_type.startswith("text/") or media_type == "application/javascript":
        media_type += "; charset=utf-8"
    caching = FOREVER if name.startswith(IMMUTABLE) else EACH_TIME
    return StaticFile(content, compressed, media_type, caching, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
