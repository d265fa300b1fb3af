"""The routes of the task plane, their rows in the access table, and their part of the OpenAPI document.

Inference changes nothing in the fleet, so that a viewer's token may submit tasks: a key for a chat program must not
be able to deploy. What changes pools is for operators. Submitting is not written to the audit trail, which would be a
disk write for each request; who used how much is accounted for, and refusals of access are recorded as everywhere.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.inference.http import listing, resources
from homeport.inference.http import tasks as task_routes
from homeport.inference.http.documents import OPERATIONS
from homeport.inference.http.errors import from_problem, openai_from_problem
from homeport.inference.http.gateway import Gateway, get_model, list_models, refuse_path
from homeport.inference.http.tasks import raw
from homeport.inference.plane import TaskPlane
from homeport.serving.capability import Routes
from homeport.serving.middleware.error_shapes import unchanged
from homeport.serving.routing import RawRoute, Router

_SUBMIT: Final = Action("tasks.submit", Level.VIEWER, Scope.SEEN, Audit.NONE)
_READ: Final = Action("tasks.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
_CANCEL: Final = Action("tasks.cancel", Level.VIEWER, Scope.SEEN, Audit.ASYNC)
_ARTIFACT: Final = Action("artifacts.create", Level.VIEWER, Scope.SEEN, Audit.ASYNC)
_SESSION: Final = Action("sessions.change", Level.VIEWER, Scope.SEEN, Audit.ASYNC)
_POOL_READ: Final = Action("pools.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
_POOL: Final = Action("pools.change", Level.OPERATOR, Scope.FLEET, Audit.WAIT)
_WORKER: Final = Action("workers.register", Level.OPERATOR, Scope.FLEET, Audit.WAIT)
CHAT: Final = Action("openai.call", Level.VIEWER, Scope.SEEN, Audit.NONE)
_META: Final = Action("inference.read", Level.KNOWN, Scope.SEEN, Audit.NONE)

# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/v2/tasks"): _SUBMIT,
    ("GET", "/v2/tasks/{id}/events"): _READ,
    ("GET", "/v2/tasks/{id}/why"): _READ,
    ("POST", "/v2/tasks/{id}/cancel"): _CANCEL,
    ("GET", "/v2/queue"): _READ,
    ("GET", "/v2/queue/events"): _READ,
    ("GET", "/v2/sessions"): _READ,
    ("GET", "/v2/sessions/{id}"): _READ,
    ("POST", "/v2/sessions/{id}"): _SESSION,
    ("DELETE", "/v2/sessions/{id}"): _SESSION,
    ("GET", "/v2/pools"): _POOL_READ,
    ("GET", "/v2/pools/{id}"): _POOL_READ,
    ("GET", "/v2/pools/{id}/health"): _POOL_READ,
    ("POST", "/v2/pools/{id}/drain"): _POOL,
    ("DELETE", "/v2/pools/{id}/drain"): _POOL,
    ("POST", "/v2/pools/{id}/reload"): _POOL,
    ("POST", "/v2/pools/{id}/purge"): _POOL,
    ("POST", "/v2/workers/register"): _WORKER,
    ("GET", "/v2/meta/capabilities"): _META,
    ("GET", "/v2/meta/version"): _META,
    ("GET", "/v2/usage"): _READ,
    ("POST", "/v2/artifacts"): _ARTIFACT,
    ("GET", "/v2/artifacts"): _READ,
    ("GET", "/v2/artifacts/{id}"): _READ,
    ("GET", "/v1/models"): CHAT,
    ("GET", "/v1/models/{model:path}"): CHAT,
    ("GET", "/v1/{path:path}"): CHAT,
    ("POST", "/v1/{path:path}"): CHAT,
}
_HANDLERS: Final[Mapping[tuple[str, str], Any]] = {
    ("POST", "/v2/tasks"): task_routes.submit,
    ("GET", "/v2/tasks/{id}/events"): task_routes.events,
    ("GET", "/v2/tasks/{id}/why"): resources.why_task,
    ("POST", "/v2/tasks/{id}/cancel"): task_routes.cancel,
    ("GET", "/v2/queue"): listing.show_queue,
    ("GET", "/v2/queue/events"): listing.follow_queue,
    ("GET", "/v2/sessions"): listing.list_sessions,
    ("GET", "/v2/sessions/{id}"): resources.get_session,
    ("POST", "/v2/sessions/{id}"): resources.touch_session,
    ("DELETE", "/v2/sessions/{id}"): resources.delete_session,
    ("GET", "/v2/pools"): resources.list_pools,
    ("GET", "/v2/pools/{id}"): resources.get_pool,
    ("GET", "/v2/pools/{id}/health"): resources.pool_health,
    ("POST", "/v2/pools/{id}/drain"): resources.drain,
    ("DELETE", "/v2/pools/{id}/drain"): resources.undrain,
    ("POST", "/v2/pools/{id}/reload"): resources.reload,
    ("POST", "/v2/pools/{id}/purge"): resources.purge,
    ("POST", "/v2/workers/register"): resources.register_worker,
    ("GET", "/v2/meta/capabilities"): resources.capabilities,
    ("GET", "/v2/meta/version"): resources.show_version,
    ("GET", "/v2/usage"): resources.usage,
    ("POST", "/v2/artifacts"): resources.post_artifact,
    ("GET", "/v2/artifacts"): listing.list_artifacts,
    ("GET", "/v2/artifacts/{id}"): resources.get_artifact,
    ("GET", "/v1/models"): list_models,
    ("GET", "/v1/models/{model:path}"): get_model,
    ("GET", "/v1/{path:path}"): refuse_path,
}
# fmt: on


def inference_routes(plane: TaskPlane) -> Routes:
    router = Router(tags=["inference"])
    for (method, path), handler in _HANDLERS.items():
        operation = OPERATIONS[method, path]
        router.routes.append(RawRoute(path, raw(handler, plane), methods=[method], operation=operation))
    gateway = RawRoute(
        "/v1/{path:path}", Gateway(plane), methods=["POST"], operation=OPERATIONS["POST", "/v1/{path:path}"]
    )
    router.routes.append(gateway)
    shapes = {"/v2/": from_problem, "/metrics": unchanged, "/v1/": openai_from_problem}
    shortcuts = {("POST", "/v2/tasks"): partial(task_routes.submit_shortly, plane)}
    return Routes(router, ACTIONS, shapes, shortcuts)
