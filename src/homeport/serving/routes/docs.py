"""`/openapi.json`, and `/docs`: the same document as a page. It loads nothing from outside, so it works without an
uplink."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from fastapi.responses import HTMLResponse, JSONResponse

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.serving.capability import Routes
from homeport.serving.routing import Router

# A browser sends no token, and the content is the same for every caller.
_READ: Final = Action("docs.read", Level.OPEN, Scope.NONE, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/docs"): _READ,
    ("GET", "/openapi.json"): _READ,
}
# fmt: on


def docs_routes(document: Callable[[], dict[str, Any]]) -> Routes:
    router = Router()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page, policy = _page()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(document())

    return Routes(router, ACTIONS)


@cache
def _page() -> tuple[str, str]:
    """The page, and a content security policy that allows only its own script and style and only this server."""
    page = files("homeport.serving.routes").joinpath("docs.html").read_text(encoding="utf-8")
    script, style = (_hash(page, tag) for tag in ("script", "style"))
    policy = f"default-src 'none'; connect-src 'self'; script-src {script}; style-src {style}; img-src data:"
    return page, policy + "; base-uri 'none'; frame-ancestors 'none'"


def _hash(page: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None, f"docs.html has no <{tag}>"
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
