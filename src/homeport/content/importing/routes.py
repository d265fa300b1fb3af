"""`POST /api/v1/apps/imports`: a compose file becomes an app of the catalog, for those who have no command line."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Query
from pydantic import Field

from homeport.catalog.documents import dump
from homeport.catalog.packages import compose_artifact
from homeport.content.importing.description import CATEGORY, FIRST_VERSION, Imported, render_description
from homeport.content.importing.uploads import FILES_MAX, NAME_LENGTH_MAX, ImportUpload, import_upload
from homeport.content.routes import NAME_PREFIX
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.errors import Conflict
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.registering import NewApp, register_app
from homeport.serving.bodies.apps import AppBody
from homeport.serving.bodies.body import Body
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router

TEXT_LENGTH_MAX: Final = 512 * 1024
VALUES_MAX: Final = 200
AT_ONCE: Final = 2
"""How many compose files are read at the same time: each takes a process."""
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/apps/imports"): Action("apps.import", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
}
_Text = Annotated[str, Field(max_length=TEXT_LENGTH_MAX)]


class ImportApp(Body):
    files: Mapping[Annotated[str, Field(max_length=NAME_LENGTH_MAX)], _Text] = Field(
        min_length=1, max_length=FILES_MAX, description="By name: a compose.yaml, and the files beside it."
    )
    name: str | None = Field(default=None, min_length=1, max_length=200, description="The file's own where missing.")
    values: Mapping[str, Annotated[str, Field(max_length=2000)]] = Field(
        default_factory=dict, max_length=VALUES_MAX, description="Values of variables that have none."
    )


class ImportParameterBody(Body):
    name: str
    type: str
    default: str | None
    required: bool


class ImportedBody(Body):
    app_name: str
    summary: str
    parameters: Sequence[ImportParameterBody]
    notes: Sequence[str] = Field(description="How it will differ from compose, a sentence each.")
    missing: Mapping[str, str] = Field(description="Variables without a value, each with what to do.")
    files: Sequence[str] = Field(description="What goes along to the nodes.")
    app: AppBody | None = Field(description="In the catalog; null for a plan, which writes nothing.")


def import_routes(central: CentralPlatform) -> Routes:
    router, limiter = Router(tags=["apps"]), CapacityLimiter(AT_ONCE)

    @router.post(
        "/api/v1/apps/imports", summary="Make an app of a compose file", status_code=201, responses={409: {}}
    )
    async def import_compose_file(
        caller: CallerOf,
        body: ImportApp,
        plan: Annotated[bool, Query(description="Check it and say what would be added; write nothing.")] = False,
    ) -> ImportedBody:
        """What compose can do and nodes cannot is refused with file and line, before anything is written."""
        upload = ImportUpload(body.files, body.name, body.values)
        imported = await run_sync(import_upload, upload, limiter=limiter)
        if plan:
            return _body(imported, None)
        registry = central.registry
        if registry is None or registry.address is None:
            why = "This server has no built-in registry." if registry is None else registry.why_off
            raise Conflict(why, hint="Import it with a registry of your own:  homeport deploy --registry HOST/NAME .")
        name, revision = f"{NAME_PREFIX}/{imported.name}", imported.revision
        repository = f"oci://{registry.address.host}/{name}"
        description = render_description(imported, repository=repository, revision=revision, version=FIRST_VERSION)
        artifact = await run_sync(compose_artifact, imported.name, revision, imported.archive)
        await registry.push(name, revision, artifact)
        new = NewApp(CATEGORY, imported.name, dump(description))
        added = await register_app(new, caller, store=central.store, clock=central.clock, ids=central.ids)
        (app,) = (*added.added, *added.unchanged)
        return _body(imported, AppBody(**{each: getattr(app, each) for each in AppBody.model_fields}))

    return Routes(router, ACTIONS)


def _body(imported: Imported, app: AppBody | None) -> ImportedBody:
    return ImportedBody(
        app_name=imported.name,
        summary=imported.summary,
        parameters=[
            ImportParameterBody(
                name=each.name, type=each.data_type, default=_shown(each.default), required=each.is_required
            )
            for each in imported.offered
        ],
        notes=list(imported.notes),
        missing={name: problem.message for name, problem in imported.undefined.items()},
        files=sorted(imported.files),
        app=app,
    )


def _shown(default: Any) -> str | None:
    return None if default is None else str(default).lower() if isinstance(default, bool) else str(default)
