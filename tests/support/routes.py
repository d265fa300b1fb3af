"""Every route of a web application, however it was added: framework routes, plain ones and mounted applications."""

from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute

from homeport.core.access.actions import ActionTable
from homeport.serving.middleware.authorization import Authorization


def table_of(app: FastAPI) -> ActionTable:
    kinds: dict[object, Any] = {each.cls: each for each in app.user_middleware}
    table = kinds[Authorization].kwargs["table"]
    assert isinstance(table, ActionTable)
    return table


def routes_of(app: FastAPI) -> list[BaseRoute]:
    found = list(app.routes)
    assert len(found) > 10, "the routes of the application were not found"
    return found
