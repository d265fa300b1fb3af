"""`homeport models serve`: the model into the catalog, the app of its engine into the catalog, a deployment of it."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from homeport.catalog.documents import dump
from homeport.cli.api.client import Client, Json
from homeport.cli.exits import Exit
from homeport.cli.local.models import ModelSource, absolute, catalog_body, refuse_unknown_name, source_for
from homeport.cli.options import Settings
from homeport.cli.terminal.output import done, print_data
from homeport.cli.terminal.progress import lines_for
from homeport.cli.terminal.verdicts import exit_of, print_verdicts
from homeport.cli.terminal.waiting import Wait, WaitVerdict
from homeport.content.importing.description import CATEGORY, FIRST_VERSION, app_name, render_description
from homeport.content.importing.engines import import_engine
from homeport.core.inference.engines.handoff import IDLE_SECONDS_MAX, EngineName
from homeport.core.inference.engines.spec import BY_NAME, VARIABLES, read_engine
from homeport.core.inference.models.references import MODEL_ID
from homeport.core.values.durations import seconds_of
from homeport.errors import NotFound
from homeport.lazy_dataclass import dataclass

POOL_SECONDS_MAX: Final = 15.0
"""How long the news of a new engine may take to central."""
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """As given on the command line; empty or None where nothing was said."""

    site: str
    targets: Sequence[Json] = ()
    """The site and its nodes, as a deployment names them."""
    device: str | None = None
    name: str = ""
    engine: str = "llamacpp"
    mode: str | None = None
    replicas: int | None = None
    max_replicas: int | None = None
    min_replicas: int | None = None
    idle: str = ""
    ctx_tokens: int | None = None
    slots: int | None = None
    port: int | None = None
    digest: str = ""
    flags: tuple[str, ...] = ()
    push: bool = False
    timeout: float = 1800.0
    image: str = ""
    """Another one than the engine's own."""
    binary: str = ""
    repository: str = ""
    revision: str = ""
    build: str = ""
    checksum: str = ""
    url: str = ""
    """Of an engine that runs already."""
    api_key: str = ""
    """secret://NAME, which the engine asks for."""
    on_request: bool = False
    """Only say how it is served when the first request comes."""


def serve_model(settings: Settings, client: Client, ref: str, options: ServeOptions) -> Exit:
    site, count, scaling = options.site, _replicas(options), _scaling(options)
    engine = EngineName(options.engine)
    source, is_known = _source(settings, client, ref, site, options)
    parameters = {**_parameters(source, options), **scaling}
    _check(engine, parameters)
    app, name = _app(client, engine), options.name or app_name(source.model_id)
    if options.on_request:
        policy = {
            "site": site,
            "app": app["app_name"],
            "version": app["version"],
            "engine": engine.value,
            "name": name,
            "parameters": parameters,
            "nodes": options.targets[0].get("host_ids") or [],
            "count": count or 1,
        }
        return _promise(settings, client, source, policy, is_idle=bool(options.idle))
    if engine not in BY_NAME and not options.url and not is_known:
        client.post("/v2/catalog/models", catalog_body(source, ()))
    body: Json = {
        "app_id": app["id"],
        "sites": list(options.targets),
        "name": name,
        "parameters": parameters,
        "placement": {"mode": "one"} if count is None else {"mode": "count", "count": count},
        "reset_values": True,
    }
    deployed = client.post("/api/v1/deployments", body)
    if not settings.is_data:
        click.echo(f"serving {source.model_id} with {app['app_name']} at site {site}")
    lines = None if settings.is_data else lines_for(settings)
    ends = Wait(client, deployed["deployment_ids"], lines).run(
        after=deployed.get("last_event_id"), timeout_seconds=options.timeout
    )
    code = exit_of(ends, wanted=WaitVerdict.INSTALLED)
    is_ready = code is Exit.DONE and _is_ready(client, name)
    if settings.is_data:
        print_data(settings, {**deployed, "pool_id": name, "model": source.model_id, "ready": is_ready})
        return code
    print_verdicts(ends, unchanged=deployed["unchanged"])
    if code is Exit.DONE:
        done(f"pool {name} serves {source.model_id}" + ("" if is_ready else " soon"))
        if not is_ready:
            click.echo(f"  It does not answer here yet. See  homeport pools show {name}")
        click.echo(f"  Ask it:  homeport chat --model {source.model_id} Hello")
        click.echo(f"  or:      curl {client.url}/v1/chat/completions -H 'Content-Type: application/json' \\")
        click.echo('    -H "Authorization: Bearer $(homeport token)" \\')
        click.echo(
            f'    -d \'{{"model": "{source.model_id}", "messages": [{{"role": "user", "content": "Hello"}}]}}\''
        )
    return code


def _promise(
    settings: Settings, client: Client, source: ModelSource, policy: Mapping[str, object], *, is_idle: bool
) -> Exit:
    """The model into the catalog, with how it is served when the first request comes."""
    known = client.get(f"/v2/catalog/models/{source.model_id}") if _is_known(client, source.model_id) else {}
    kept = {key: known[key] for key in ("tags", "manifests", "signatures", "sbom", "trust_policy") if known.get(key)}
    body = {**catalog_body(source, ()), **kept, "on_request": policy}
    if EngineName(str(policy["engine"])) in BY_NAME:
        body["source_url"] = ""  # its engine fetches it by that name from a hub of its own
    found = client.post("/v2/catalog/models", body)
    if settings.is_data:
        print_data(settings, found)
        return Exit.DONE
    where = f"at site {policy['site']} when the first request comes, as pool {policy['name']}"
    done(f"{source.model_id} is served {where}")
    if not is_idle:
        click.echo("  It stays loaded from then on. With  --idle 10m  it is unloaded when it is not used.")
    click.echo(f"  Ask it:  homeport chat --model {source.model_id} Hello")
    return Exit.DONE


def _is_known(client: Client, model_id: str) -> bool:
    try:
        client.get(f"/v2/catalog/models/{model_id}")
    except NotFound:
        return False
    return True


def _check(engine: EngineName, parameters: Mapping[str, str]) -> None:
    """As the node will judge it: what is wrong is said before anything is deployed. Raises InvalidInput."""
    names = {key: variable for variable, key in VARIABLES.items()}
    read_engine({"engine": engine.value}, {names[key]: value for key, value in parameters.items()})


def _is_ready(client: Client, pool_id: str) -> bool:
    """The engine runs; the news of it and its first health check take a moment."""
    deadline = time.monotonic() + POOL_SECONDS_MAX
    while True:
        try:
            if client.get(f"/v2/pools/{pool_id}/health")["ready"]:
                return True
        except NotFound:
            pass
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)


def _source(
    settings: Settings, client: Client, ref: str, site: str, options: ServeOptions
) -> tuple[ModelSource, bool]:
    """And whether the catalog has it under this name: then it stays described as it is."""
    if options.url or EngineName(options.engine) in BY_NAME:
        return ModelSource(ref, "", 0, ref), False
    known = known_model(client, ref)
    if known is not None:
        return known, True
    refuse_unknown_name(client, ref)
    found = source_for(
        settings, client, absolute(ref), site=site, digest=options.digest, model_id="", push=options.push
    )
    return found, False


def known_model(client: Client, ref: str) -> ModelSource | None:
    """A model of the catalog by its id."""
    if not MODEL_ID.fullmatch(ref) or ref.startswith("hf:"):
        return None
    try:
        found = client.get(f"/v2/catalog/models/{ref}")
    except NotFound:
        return None
    if not found["source_url"]:
        return None
    return ModelSource(found["source_url"], found["digest"], found["size_bytes"], found["id"])


def _app(client: Client, engine: EngineName) -> Json:
    imported = import_engine(engine)
    assert imported.place is not None, "an engine has a home"
    repository, revision = imported.place
    description = render_description(imported, repository=repository, revision=revision, version=FIRST_VERSION)
    body = {"category": CATEGORY, "app_name": imported.name, "description": dump(description).decode()}
    answer = client.post("/api/v1/apps", body)
    app: Json = (answer["added"] or answer["unchanged"])[0]
    return app


def _replicas(options: ServeOptions) -> int | None:
    given = {options.replicas, options.max_replicas} - {None}
    if len(given) > 1:
        raise click.UsageError("--replicas and --max-replicas are the same thing. Give one of them.")
    return next(iter(given), None)


def _scaling(options: ServeOptions) -> dict[str, str]:
    if not options.idle:
        if options.min_replicas is not None:
            raise click.UsageError("--min-replicas needs --idle: without it replicas are always loaded.")
        return {}
    if (options.min_replicas or 0) > (_replicas(options) or 1):
        raise click.UsageError("--min-replicas is above the number of replicas. Give more with --max-replicas.")
    seconds = seconds_of(options.idle)
    if seconds is None or not 1 <= seconds <= IDLE_SECONDS_MAX:
        raise click.UsageError("--idle must be a time from one second to seven days, as in 90s, 10m or 2h.")
    return {"idle_seconds": str(round(seconds)), "min_replicas": str(options.min_replicas or 0)}


def _parameters(source: ModelSource, options: ServeOptions) -> dict[str, str]:
    given = {
        "model": "" if options.url else source.reference,
        "digest": source.digest,
        "model_id": source.model_id,
        "device": options.device,
        "mode": "external" if options.url else options.mode,
        "url": options.url,
        "api_key": options.api_key,
        "image": options.image,
        "binary": options.binary,
        "repository": options.repository,
        "revision": options.revision,
        "build": options.build,
        "checksum": options.checksum,
        "context": options.ctx_tokens,
        "slots": options.slots,
        "port": options.port,
        "flags": " ".join(options.flags),
    }
    return {key: str(value) for key, value in given.items() if value}
