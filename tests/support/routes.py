"""Which routes of a web application declare no action of the table of roles."""

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from homeport.core.access.roles import ACTIONS
from homeport.serving.callers import declared_action


def undeclared(app: FastAPI) -> list[str]:
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute):
            found.append((route.path, declared_action(route.dependant)))
    assert len(found) > 10, "the routes of the application were not found"
    assert {action for _, action in found if action is not None} <= set(ACTIONS)
    return [path for path, action in found if action is None]
