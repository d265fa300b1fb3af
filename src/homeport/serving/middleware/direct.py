"""Calls raw routes without the framework's router: the access table has found the route already, and the router would
compare the path with every other one first."""

from collections.abc import Iterable

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from homeport.core.access.actions import ActionTable
from homeport.serving.middleware.authorization import look_up
from homeport.serving.routing import RawRoute


class Direct:
    """The innermost middleware: whatever reaches it is authorized."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], table: ActionTable) -> None:
        self._app = app
        self._table = table
        self._routes = {
            (method, route.path): route.app
            for route in routes
            if isinstance(route, RawRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = look_up(scope, self._table)
            route = None if found is None else self._routes.get((scope["method"], found.template))
            if found is not None and route is not None:
                scope["path_params"] = found.params
                await route(scope, receive, send)
                return
        await self._app(scope, receive, send)
