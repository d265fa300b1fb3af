"""Routes that are compiled on first use.

The framework inspects the signature of every handler and builds a validator for each parameter and body, some
milliseconds for a route, and most processes never serve most of the eighty routes.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class LateRoute(APIRoute):
    """Knows its path and methods from the start; the rest is built at its first request, or for the OpenAPI
    document."""

    def __init__(self, path: str, endpoint: Any, *, methods: list[str], **options: Any) -> None:
        Route.__init__(self, path, endpoint, methods=methods, include_in_schema=options["include_in_schema"])
        self.methods = set(methods)  # the framework's own routes do not add HEAD
        self._options: dict[str, Any] | None = {**options, "methods": methods}

    def complete(self) -> None:
        if self._options is None:
            return
        with warnings.catch_warnings():
            # As the framework does where it builds a validator; that of a body is built on first use.
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
            super().__init__(self.path, self.endpoint, **self._options)
            if self.body_field is not None:
                self.body_field.validate(None, loc=("body",))
        self._options = None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.complete()
        await super().handle(scope, receive, send)


class Router(APIRouter):
    """Where a capability declares its routes; the operation id is the handler's name."""

    def __init__(self, *, tags: list[str] | None = None) -> None:
        super().__init__(tags=[*(tags or [])], route_class=LateRoute, generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return route.name


class RawRoute(Route):
    """A plain ASGI application at one path, for what is requested too often for the framework. It validates its own
    input and brings its part of the OpenAPI document."""

    def __init__(self, path: str, app: ASGIApp, *, methods: list[str], operation: Mapping[str, Any]) -> None:
        super().__init__(path, _Plain(app), methods=methods, include_in_schema=False)
        self.methods = set(methods)
        self.operation = operation
        """As in the OpenAPI document, for each of its methods."""


class _Plain:
    """An instance, so that the framework does not take it for a function that expects a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
