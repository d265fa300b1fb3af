"""`/openapi.json`, and `/docs`: the same document as a page. It needs nothing from outside, so it works with the
uplink down."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, JSONResponse

from homeport.serving.callers import allowed


def docs_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    router = APIRouter(dependencies=[Depends(allowed("docs.read"))])

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page, policy = _page()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(document())

    return router


@cache
def _page() -> tuple[str, str]:
    """The page, and a policy under which only its own script and style run and only this server is asked."""
    page = files("homeport.serving").joinpath("docs.html").read_text(encoding="utf-8")
    script, style = (_hash(page, tag) for tag in ("script", "style"))
    policy = f"default-src 'none'; connect-src 'self'; script-src {script}; style-src {style}; img-src data:"
    return page, policy + "; base-uri 'none'; frame-ancestors 'none'"


def _hash(page: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None, f"docs.html has no <{tag}>"
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"
