"""What one capability brings to a role's web application: its routes, and their rows in the access table."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from homeport.core.access.actions import Actions, ActionTable
from homeport.lazy_dataclass import dataclass
from homeport.serving.middleware.error_shapes import Shape
from homeport.serving.middleware.shortcuts import ShortHandler
from homeport.serving.routing import Router

ANY_METHOD: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")


@dataclass(frozen=True, slots=True)
class Routes:
    router: Router
    actions: Actions
    error_shapes: Mapping[str, Shape] = field(default_factory=dict)
    """By the beginning of a path, where another contract defines how errors look."""
    shortcuts: Mapping[tuple[str, str], ShortHandler] = field(default_factory=dict)
    """Routes, by method and path, that take what is asked for most often without a task; each has a route as well."""


def include(app: FastAPI, brought: Sequence[Routes], table: ActionTable) -> None:
    """Adds the route objects themselves, mounted and raw ones too: `include_router` would create each a second time,
    and silently leave these out.

    Raises ValueError where routes and table do not match: one of them would be unreachable.
    """
    for each in brought:
        app.router.routes.extend(each.router.routes)
    served = {row for route in app.routes for row in rows_of(route, table)}
    missing, idle = served - table.rows.keys(), table.rows.keys() - served
    if missing or idle:
        raise ValueError(f"routes without an action: {sorted(missing)}; actions without a route: {sorted(idle)}")


def rows_of(route: BaseRoute, table: ActionTable) -> set[tuple[str, str]]:
    """The rows that a route needs. For a mounted application the table decides which of its paths are reachable."""
    if isinstance(route, Mount):
        below = {(method, path) for method, path in table.rows if path.startswith(f"{route.path}/")}
        return below or {(method, f"{route.path}/{{path:path}}") for method in ANY_METHOD}
    if not isinstance(route, Route):
        raise TypeError(f"{type(route).__name__} is not a kind of route that is served")
    methods = set(ANY_METHOD if route.methods is None else route.methods) - {"HEAD"}
    return {(method, route.path) for method in methods}
