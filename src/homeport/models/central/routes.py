"""`/v2/catalog/models`: which models there are, where they come from, whether they may be used.

Errors have the envelope of `/v2` (code, message), not that of `/api/v1`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec

from anyio.to_thread import run_sync
from fastapi import Header, Path, Query, Response
from fastapi.responses import JSONResponse

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.inference.models.entries import (
    ModelEntry,
    TrustPolicy,
    UntrustedArtifact,
    Verification,
    new_entry,
)
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.models.on_request import OnRequest
from homeport.errors import (
    HomeportError,
    InvalidInput,
    NotAuthorized,
    NotFound,
    PermanentError,
    Problem,
    StorageFull,
    TransientError,
)
from homeport.models.central.bodies import (
    ModelBody,
    ModelsBody,
    NewModel,
    OnRequestBody,
    PullBody,
    StateBody,
    TrustPolicyBody,
)
from homeport.models.central.catalog import Catalog
from homeport.models.central.pulls import Pulls, check_reach
from homeport.models.central.trust import ModelTrust
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router

ModelId = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]*$")]
Contains = Annotated[
    str, Query(max_length=200, description="Only those whose name contains this text; case is ignored.")
]
P = ParamSpec("P")

_READ: Final = Action("models.read", Level.VIEWER, Scope.NONE, Audit.NONE)
_ONE: Final = "/v2/catalog/models/{model_id}"
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/v2/catalog/models"): _READ,
    ("GET", _ONE): _READ,
    ("POST", "/v2/catalog/models"): Action("models.add", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("DELETE", _ONE): Action("models.remove", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("POST", f"{_ONE}/verify"): Action("models.verify", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("POST", f"{_ONE}/pull"): Action("models.pull", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("POST", f"{_ONE}/state"): Action("models.state", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
}
# fmt: on


OnVerified = Callable[[str, str], None]
_REASONS: Final = {
    Verification.PASSED: "digest",
    Verification.FAILED: "mismatch",
    Verification.UNCHECKED: "no_digest",
}


def catalog_routes(
    catalog: Catalog, pulls: Pulls, trust: ModelTrust, on_verified: OnVerified = lambda result, reason: None
) -> Routes:
    router = Router(tags=["catalog"])
    _entries(router, catalog, pulls, trust)
    _states(router, catalog, on_verified)
    _pulling(router, catalog, pulls, trust)
    return Routes(router, ACTIONS)


def _entries(router: Router, catalog: Catalog, pulls: Pulls, trust: ModelTrust) -> None:
    @router.get("/v2/catalog/models", summary="List the models of the catalog", response_model=ModelsBody)
    @_enveloped
    async def list_models(contains: Contains = "") -> Response:
        entries = await catalog.entries()
        names = sorted(name for name in entries if contains.lower() in name.lower())
        return _json(200, ModelsBody(models=[_pulled(entries[name], pulls) for name in names]))

    @router.post(
        "/v2/catalog/models",
        summary="Add a model, or describe it again",
        response_model=ModelBody,
        status_code=201,
        responses={409: {}},
    )
    @_enveloped
    async def add_model(
        body: NewModel, x_trust_policy: Annotated[str | None, Header(max_length=32)] = None
    ) -> Response:
        """With `X-Trust-Policy: strict`, a model without a signature that this server verified is refused
        (UNTRUSTED_ARTIFACT); that also holds for pulling it and for its tasks later."""
        entry = await trust.judged(_entry(body, x_trust_policy))
        entry = await catalog.put(entry)
        warning = None if entry.digest else "Nothing can verify this model: it has no digest."
        return _json(201, model_body(entry, warning))

    @router.get(
        "/v2/catalog/models/{model_id}", summary="Show one model", response_model=ModelBody, responses={404: {}}
    )
    @_enveloped
    async def show_model(model_id: ModelId) -> Response:
        return _json(200, _pulled(await catalog.get(model_id), pulls))

    @router.delete(
        "/v2/catalog/models/{model_id}",
        summary="Remove a model and its files",
        status_code=204,
        responses={404: {}},
    )
    @_enveloped
    async def remove_model(model_id: ModelId) -> Response:
        """A person's own file, which the catalog only refers to, stays."""
        await catalog.remove(model_id)
        return Response(status_code=204)


def _states(router: Router, catalog: Catalog, on_verified: OnVerified) -> None:
    @router.post(
        "/v2/catalog/models/{model_id}/verify",
        summary="Compare a model's file with its digest",
        response_model=ModelBody,
        status_code=202,
        responses={404: {}},
    )
    @_enveloped
    async def verify_model(caller: CallerOf, model_id: ModelId) -> Response:
        """A mismatch blocks new tasks. Files that only nodes have are verified by the nodes when they fetch them."""
        entry = await catalog.get(model_id)
        path = await run_sync(catalog.path_of, entry)
        if path is None:
            return _json(202, model_body(entry, "Its files are not at central: nodes verify what they fetch."))
        if not catalog.is_own(path):
            check_reach(entry, caller)
        entry, result = await catalog.verify(entry, path)
        on_verified(result.value, _REASONS[result])
        warning = "It has no digest to compare with." if result is Verification.UNCHECKED else None
        return _json(202, model_body(entry, warning))

    @router.post(
        "/v2/catalog/models/{model_id}/state",
        summary="Retire a model, or make it active again",
        response_model=ModelBody,
        status_code=202,
        responses={404: {}},
    )
    @_enveloped
    async def set_model_state(model_id: ModelId, body: StateBody) -> Response:
        """New tasks for a retired model are refused; its engines finish what they have, and are unloaded until it is
        active again. With `deadline_ms`, what has not ended by then ends with MODEL_DEPRECATED."""
        if body.state not in set(ModelLifecycle):
            known = " or ".join(ModelLifecycle)
            raise InvalidInput(problems=[Problem("state", f"must be {known}")])
        state = ModelLifecycle(body.state)
        changed = await catalog.set_state(model_id, state, body.deadline_ms)
        return _json(202, model_body(changed))


def _pulling(router: Router, catalog: Catalog, pulls: Pulls, trust: ModelTrust) -> None:
    @router.post(
        "/v2/catalog/models/{model_id}/pull",
        summary="Fetch a model to central's disk and verify it",
        response_model=ModelBody,
        status_code=202,
        responses={404: {}, 409: {}},
    )
    @_enveloped
    async def pull_model(caller: CallerOf, model_id: ModelId) -> Response:
        """Answers at once; `pull` of the model says how far it is. One that broke off goes on where it was."""
        entry = await trust.judged(await catalog.get(model_id))
        pulls.start(entry, caller)
        return _json(202, _pulled(entry, pulls))


def _pulled(entry: ModelEntry, pulls: Pulls) -> ModelBody:
    body, pull = model_body(entry), pulls.known.get(entry.id)
    if pull is None:
        return body
    progress = PullBody(
        state=pull.state.value, done_bytes=pull.done_bytes, total_bytes=pull.total_bytes, problem=pull.problem
    )
    return body.model_copy(update={"pull": progress})


def model_body(entry: ModelEntry, warning: str | None = None) -> ModelBody:
    return ModelBody(
        id=entry.id,
        digest=entry.digest,
        source_url=entry.source,
        size_bytes=entry.size_bytes,
        state=entry.state.value,
        tags=entry.tags,
        manifests=entry.manifests,
        signatures=entry.signatures,
        sbom=entry.sbom,
        trust_policy=TrustPolicyBody(
            mode="strict" if entry.policy.is_strict else "permissive",
            allowed_registries=entry.policy.allowed_registries,
            require_signature=entry.policy.require_signature,
            require_sbom=entry.policy.require_sbom,
        ),
        verification=entry.verification,
        last_verified_ms=entry.last_verified_ms,
        on_request=None if entry.on_request is None else OnRequestBody(**asdict(entry.on_request)),
        warning=warning,
    )


def _entry(body: NewModel, x_trust_policy: str | None) -> ModelEntry:
    if not body.id:
        raise InvalidInput(problems=[Problem("id", "id required")])
    if not body.digest and not body.source_url and body.on_request is None:
        raise InvalidInput(problems=[Problem("digest", "digest or source_url required")])
    return new_entry(
        model_id=body.id,
        source=body.source_url,
        digest=body.digest,
        tags=list(body.tags),
        size_bytes=body.size_bytes,
        manifests=tuple(each.model_dump() for each in body.manifests),
        signatures=tuple(each.model_dump() for each in body.signatures),
        policy=_policy(body, x_trust_policy),
        sbom=None if body.sbom is None else body.sbom.model_dump(),
        on_request=_on_request(body),
    )


def _on_request(body: NewModel) -> OnRequest | None:
    given = body.on_request
    if given is None:
        return None
    known = {"model": body.source_url, "digest": body.digest, "model_id": body.id}
    parameters = {name: value for name, value in {**given.parameters, **known}.items() if value}
    found = OnRequest(**{**given.model_dump(), "nodes": tuple(given.nodes), "parameters": parameters})
    try:
        found.spec()
    except InvalidInput as error:
        raise InvalidInput(problems=error.problems or [Problem("on_request.parameters", str(error))]) from error
    return found


def _policy(body: NewModel, header: str | None) -> TrustPolicy:
    given = body.trust_policy
    if given is not None and given.ca_roots:
        message = "signatures by certificates are not verified here; name public keys with --model-key"
        raise InvalidInput(problems=[Problem("trust_policy.ca_roots", message)])
    is_strict = (header or "").lower() == "strict" or (given is not None and given.mode == "strict")
    if given is None:
        return TrustPolicy(is_strict=is_strict)
    return TrustPolicy(
        is_strict=is_strict,
        allowed_registries=tuple(given.allowed_registries),
        require_signature=given.require_signature,
        require_sbom=given.require_sbom,
    )


_STATUS: Final[tuple[tuple[type[HomeportError], int, str], ...]] = (
    (UntrustedArtifact, 400, UntrustedArtifact.code),
    (InvalidInput, 400, "INVALID_PARAMS"),
    (NotFound, 404, "NOT_FOUND"),
    (NotAuthorized, 403, "40302 NOT_AUTHORIZED"),
    (PermanentError, 409, "CONFLICT"),
    (StorageFull, 507, "STORAGE_FULL"),
    (TransientError, 503, "UNAVAILABLE"),
    (HomeportError, 500, "INTERNAL"),
)


def _enveloped(handler: Callable[P, Awaitable[Response]]) -> Callable[P, Awaitable[Response]]:
    @wraps(handler)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return await handler(*args, **kwargs)
        except HomeportError as error:
            status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
            problems = error.problems if isinstance(error, InvalidInput) else ()
            message = "; ".join(map(str, problems)) or str(error)
            said: dict[str, Any] = {"code": code, "message": f"{message} {error.hint}" if error.hint else message}
            said["errors"] = [{"field": each.field, "message": each.message} for each in problems]
            return JSONResponse({**said, "retriable": isinstance(error, TransientError)}, status)

    return answer


def _json(status: int, body: ModelBody | ModelsBody) -> Response:
    return Response(body.model_dump_json(), status, media_type="application/json")
