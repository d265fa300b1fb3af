"""`homeport models`: the catalog of models, and serving one."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from homeport.adapters.files.paths import exists, written_path
from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_nodes, complete_sites
from homeport.cli.api.finding import only_site
from homeport.cli.commands.apps.deploy import target_sites
from homeport.cli.exits import Exit
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.output import Column, TableListing, done, print_data, print_facts, show


@click.group(cls=Group)
def models() -> None:
    """Add, list, verify, retire and remove models; serve one.

    REF is a .gguf file or a folder with one, hf:org/repo/file.gguf, https://…, s3://bucket/key or oci://host/name:tag.
    """


@models.command("add")
@click.argument("ref", metavar="REF")
@click.option("--id", "model_id", default="", help="What to call it; the file's name when left out.")
@click.option("--digest", default="", metavar="sha256:…", help="What its file must hash to.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; repeat it.")
@click.option("--push", is_flag=True, help="Send a file of this machine to the built-in registry.")
@click.option(
    "--signature",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Made of the model's file by  cosign sign-blob --key ; needs --digest unless the file is here.",
)
@click.option("--strict", is_flag=True, help="Refuse it, also later, without a signature that the server verified.")
@connected
@formatted
@pass_settings
def add(
    settings: Settings,
    /,
    *,
    ref: str,
    model_id: str,
    digest: str,
    tags: tuple[str, ...],
    push: bool,
    signature: Path | None,
    strict: bool,
) -> None:
    """Add a model to the catalog. Nodes fetch it when they first serve it."""
    from homeport.cli.local.models import absolute, catalog_body, read_signature, source_for  # noqa: PLC0415 - start-up time

    client = Client(settings.url)
    source = source_for(settings, client, absolute(ref), site="", digest=digest, model_id=model_id, push=push)
    body = catalog_body(source, tags)
    if signature is not None:
        body["signatures"] = [{"signature": read_signature(signature)}]
    if strict:
        body["trust_policy"] = {"mode": "strict"}
    found = client.post("/v2/catalog/models", body)
    if settings.is_data:
        print_data(settings, found)
        return
    done(f"model {found['id']} added: {found['source_url']}")
    if found.get("warning"):
        click.echo(f"  {found['warning']} Give one with --digest.")
    click.echo(f"  Serve it:  homeport models serve {found['id']}")


@models.command("list")
@listed
@pass_settings
def list_models(settings: Settings, watch: bool) -> None:
    """List the models of the catalog."""
    client = Client(settings.url)
    show(settings, _LISTING, lambda: client.get("/v2/catalog/models"), watch=watch)


@models.command("show")
@click.argument("model")
@connected
@formatted
@pass_settings
def show_model(settings: Settings, model: str) -> None:
    """Show one model."""
    found = Client(settings.url).get(f"/v2/catalog/models/{model}")
    if settings.is_data:
        print_data(settings, found)
        return
    _print_model(found)


@models.command("pull")
@click.argument("ref", metavar="REF|MODEL")
@click.option("--digest", default="", metavar="sha256:…", help="What its file must hash to.")
@click.option("--central", "is_central", is_flag=True, help="A model of the catalog, to central's disk instead.")
@connected
@formatted
@pass_settings
def pull_model(settings: Settings, ref: str, digest: str, is_central: bool) -> None:
    """Fetch a model to this machine (~/.cache/models), resumed where it stopped, and verify it."""
    from homeport.cli.local.model_serving import known_model  # noqa: PLC0415 - start-up time
    from homeport.cli.local.models import Bar, amount, pull, pull_to_central, refuse_unknown_name  # noqa: PLC0415

    if is_central:
        model = pull_to_central(settings, Client(settings.url), ref)
        if settings.is_data:
            print_data(settings, model)
            return
        done(f"{model['id']} is at central   {amount(model['size_bytes'])}")
        return
    client = Client(settings.url)
    known = None if exists(written_path(ref)) else known_model(client, ref)
    if known is None:
        refuse_unknown_name(client, ref)
    else:
        ref, digest = known.reference, digest or known.digest
    bar = Bar(settings, f"fetching {ref}")
    try:
        found = pull(ref, digest, bar, client)
    finally:
        bar.close()
    if settings.is_data:
        print_data(settings, {"path": str(found.path), "digest": found.digest, "size_bytes": found.size_bytes})
        return
    done(f"{found.path}   {amount(found.size_bytes)}")
    click.echo(f"  {found.digest}")


@models.command("push")
@click.argument("path", metavar="FILE")
@click.option("--name", default="", help="What to call it in the registry; the file's name when left out.")
@connected
@formatted
@pass_settings
def push(settings: Settings, path: str, name: str) -> None:
    """Put a model file into the built-in registry, as an OCI artifact that every site can fetch."""
    from homeport.cli.local.models import absolute, source_for  # noqa: PLC0415 - start-up time

    client = Client(settings.url)
    source = source_for(settings, client, absolute(path), site="", digest="", model_id=name, push=True)
    if settings.is_data:
        print_data(settings, {"reference": source.reference, "digest": source.digest})
        return
    done(f"pushed {source.reference}")
    click.echo(f"  Serve it:  homeport models serve {source.reference} --digest {source.digest}")


@models.command("verify")
@click.argument("model")
@connected
@formatted
@pass_settings
@click.pass_context
def verify(ctx: click.Context, settings: Settings, model: str) -> None:
    """Compare a model's file with its digest. A mismatch blocks new tasks."""
    found = Client(settings.url).post(f"/v2/catalog/models/{model}/verify", {})
    if settings.is_data:
        print_data(settings, found)
    elif found["verification"] == "failed":
        click.echo(
            f"{click.style('✗', fg='red')} {model} does not match its digest, or its file is missing.", err=True
        )
    else:
        done(f"{model}: {found['warning'] or found['verification']}")
    ctx.exit(1 if found["verification"] == "failed" else 0)


@models.command("retire")
@click.argument("model")
@click.option("--deadline", type=click.FloatRange(min=0), metavar="SECONDS", help="What runs then ends as failed.")
@connected
@pass_settings
def retire(settings: Settings, model: str, deadline: float | None) -> None:
    """Refuse new tasks for a model, and unload its engines once they have finished what they have."""
    until = {} if deadline is None else {"deadline_ms": int(deadline * 1000)}
    Client(settings.url).post(f"/v2/catalog/models/{model}/state", {"state": "Retired", **until})
    done(f"{model} is retired")


@models.command("activate")
@click.argument("model")
@connected
@pass_settings
def activate(settings: Settings, model: str) -> None:
    """Load a retired model again, and take new tasks for it."""
    Client(settings.url).post(f"/v2/catalog/models/{model}/state", {"state": "Active"})
    done(f"{model} is active")


@models.command("remove")
@click.argument("model")
@connected
@pass_settings
def remove(settings: Settings, model: str) -> None:
    """Remove a model from the catalog, with the files that the catalog keeps of it."""
    Client(settings.url).delete(f"/v2/catalog/models/{model}")
    done(f"removed model {model}")


def installed(command: Callable[..., None]) -> Callable[..., None]:
    """Adds where the program of an engine comes from, with --mode binary or source."""
    options = (
        click.option(
            "--binary", default="", metavar="PROGRAM|URL", help="With --mode binary: a program, or a release."
        ),
        click.option("--repository", default="", metavar="URL", help="With --mode source: Git, or an archive."),
        click.option("--revision", default="", help="With --mode source: a branch, tag or commit."),
        click.option("--build", default="", metavar="COMMAND", help="With --mode source: how it is built [CMake]."),
        click.option("--checksum", default="", metavar="sha256:…", help="Of what --binary or --repository fetches."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@models.command("serve")
@click.argument("ref", metavar="REF|MODEL")
@click.option("--site", help="The site [the only one].", shell_complete=complete_sites)
@click.option("--node", "nodes", multiple=True, help="Only on this node; repeat it.", shell_complete=complete_nodes)
@click.option("--gpu", "device", flag_value="gpu", help="On the GPU [the default].")
@click.option("--allow-cpu", "device", flag_value="cpu", help="Run on the CPU: slow, so it must be requested.")
@click.option("--name", default="", help="What to call the deployment and its pool; the model's name when left out.")
@click.option("--engine", type=click.Choice(["llamacpp", "vllm", "tgi", "ollama"]), default="llamacpp")
@click.option("--mode", type=click.Choice(["package", "binary", "container", "source"]), help="How it is installed.")
@click.option("--image", default="", help="Another image than the engine's own, with --mode container.")
@installed
@click.option("--replicas", type=click.IntRange(1, 1000), help="On so many nodes [one].")
@click.option("--min-replicas", type=click.IntRange(0, 1000), help="So many stay loaded, with --idle [0].")
@click.option("--max-replicas", type=click.IntRange(1, 1000), help="The same as --replicas.")
@click.option("--idle", default="", metavar="TIME", help="Unload what was not needed for so long, as in 10m.")
@click.option("--ctx", "ctx_tokens", type=click.IntRange(1), metavar="TOKENS", help="Context for each slot [4096].")
@click.option("--slots", type=click.IntRange(1, 256), help="How many requests at a time [1].")
@click.option("--port", type=click.IntRange(1024, 65535), help="The preferred port of the engine [8100].")
@click.option("--digest", default="", metavar="sha256:…", help="What the model's file must hash to.")
@click.option("--flag", "flags", multiple=True, help="A further option of the engine; repeat it.")
@click.option("--push", is_flag=True, help="Send a file of this machine to the registry even for nodes here.")
@click.option("--on-request", is_flag=True, help="Deploy nothing now, but when the first request comes.")
@click.option("--timeout", default=1800.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def serve(ctx: click.Context, settings: Settings, /, *, ref: str, **options: Any) -> None:
    """Serve a model: from a file, a folder or an address to a pool that answers /v1/chat/completions.

    It is a deployment of the app of its engine: update it by serving again under the same --name, roll it back or
    delete it with  homeport deployments . With --on-request the first task or request for the model deploys it, and
    waits; with --idle too, its memory is free while there are no requests.
    """
    ctx.exit(serve_at(settings, ref, **options))


def serve_at(settings: Settings, ref: str, *, site: str | None, nodes: tuple[str, ...], **options: Any) -> Exit:
    """At the named site, or the only one."""
    from homeport.cli.local.model_serving import ServeOptions, serve_model  # noqa: PLC0415 - start-up time

    client = Client(settings.url)
    site = site or only_site(client)
    targets = target_sites((site,), nodes)
    return serve_model(settings, client, ref, ServeOptions(site=site, targets=targets, **options))


_LISTING = TableListing(
    key="models",
    columns=(
        Column("MODEL", lambda model: model["id"]),
        Column("STATE", lambda model: model["state"], vital=True),
        Column("VERIFIED", lambda model: model["verification"] or "-"),
        Column("SOURCE", lambda model: model["source_url"]),
        Column("DIGEST", lambda model: model["digest"][:19], wide=True),
    ),
    identity=lambda model: str(model["id"]),
    empty="There is no model yet. Add one:  homeport models add hf:ORG/REPO/FILE.gguf",
)


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _signed(found: Json) -> str:
    """Only what the server verified."""
    signers = [each["signer"] for each in found["signatures"] if each["verified"]]
    return f"by {', '.join(signers)}" if signers else "no" if found["signatures"] else ""


def _on_request(policy: Json | None) -> str:
    return "" if policy is None else f"served at site {policy['site']} with {policy['app']}, as pool {policy['name']}"


def _print_model(found: Json) -> None:
    checked = found["last_verified_ms"]
    print_facts(
        [
            ("model", found["id"]),
            ("state", found["state"]),
            ("source", found["source_url"]),
            ("digest", found["digest"]),
            ("size", f"{found['size_bytes']:,} bytes" if found["size_bytes"] else ""),
            ("verified", f"{found['verification']} at {_moment(checked)}" if checked else found["verification"]),
            ("signed", _signed(found)),
            ("tags", ", ".join(found["tags"])),
            ("on request", _on_request(found.get("on_request"))),
        ]
    )
