"""`homeport engines`: how an inference engine gets onto a machine, and which ones are deployed."""

import os
from typing import Any

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_nodes, complete_sites
from homeport.cli.commands.models.models import installed, serve_at
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.output import Column, TableListing, print_data, show

ENGINES = click.Choice(["llamacpp", "vllm", "tgi", "ollama"])
ATTACHED = click.Choice(["llamacpp", "vllm", "tgi", "ollama", "triton", "openai"])
MODES = click.Choice(["package", "binary", "container", "source"])


@click.group(cls=Group)
def engines() -> None:
    """Plan, provision, attach and list inference engines.

    They are llama.cpp, vLLM, TGI and Ollama; Triton and whatever speaks OpenAI's language can be attached.
    """


@engines.command("plan")
@click.argument("engine", type=ENGINES)
@click.argument("model", metavar="REF")
@click.option("--mode", type=MODES, help="How it is installed.")
@click.option("--allow-cpu", is_flag=True, help="Run on the CPU: slow, so it must be requested.")
@click.option("--image", default="", help="Another image than the engine's own.")
@installed
@click.option("--container-engine", type=click.Choice(["podman", "docker", "none"]), help="[what is on the PATH]")
@click.option("--keep", is_flag=True, help="Store it on the server as an artifact, and print its id.")
@connected
@formatted
@pass_settings
@click.pass_context
def plan(ctx: click.Context, settings: Settings, /, *, engine: str, model: str, keep: bool, **options: Any) -> None:
    """Say what provisioning an engine on this machine would do, and what the machine lacks for it.

    The same input on the same machine gives the same plan, and the same id where it is kept. It needs no server
    otherwise.
    """
    found = _plan(engine, model, **options)
    if keep:
        body = {"kind": "plan", "content": found, "tags": [f"engine:{engine}"]}
        artifact_id = Client(settings.url).post("/v2/artifacts", body)["id"]
        found["artifact_id"] = artifact_id
        click.echo(f"artifact {artifact_id}", err=settings.is_data)
    if settings.is_data:
        print_data(settings, found)
    else:
        for step in found["steps"]:
            click.echo(f"{step['number']:>2}  {step['kind']:<16} {step['description']}")
            if step["command"]:
                click.echo(f"    {'':<16} {' '.join(step['command'])}")
        for missing in found["missing"]:
            click.echo(f"{click.style('✗', fg='red')} {missing['problem']} {missing['fix']}", err=True)
    ctx.exit(1 if found["missing"] else 0)


@engines.command("provision")
@click.argument("engine", type=ENGINES)
@click.argument("model", metavar="REF")
@click.option("--site", help="The site [the only one].", shell_complete=complete_sites)
@click.option("--node", "nodes", multiple=True, help="Only on this node; repeat it.", shell_complete=complete_nodes)
@click.option("--mode", type=MODES, help="How it is installed.")
@click.option("--gpu", "device", flag_value="gpu", help="On the GPU [the default].")
@click.option("--allow-cpu", "device", flag_value="cpu", help="Run on the CPU: slow, so it must be requested.")
@click.option("--name", default="", help="What to call the deployment and its pool.")
@click.option("--port", type=click.IntRange(1024, 65535), help="The preferred port; the next free one is taken.")
@click.option("--image", default="", help="Another image than the engine's own.")
@installed
@click.option("--timeout", default=1800.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def provision(ctx: click.Context, settings: Settings, /, *, engine: str, model: str, **options: Any) -> None:
    """Install and start an engine with a model on a node, and wait until it is ready.

    Ollama and vLLM run as containers, with the volume, port and GPU flags of Podman or Docker.
    """
    ctx.exit(serve_at(settings, model, engine=engine, **options))


@engines.command("attach")
@click.argument("engine", type=ATTACHED)
@click.argument("url", metavar="URL")
@click.option("--model", required=True, help="The name that the engine serves its model by.")
@click.option("--site", help="Whose pool it becomes [the only one].", shell_complete=complete_sites)
@click.option("--node", "nodes", multiple=True, help="The node that reaches it.", shell_complete=complete_nodes)
@click.option("--name", default="", help="What to call the deployment and its pool.")
@click.option("--slots", type=click.IntRange(1, 256), help="How many requests at a time [1].")
@click.option("--ctx", "ctx_tokens", type=click.IntRange(1), metavar="TOKENS", help="Its context [as it reports].")
@click.option(
    "--api-key",
    default="",
    metavar="secret://NAME",
    help="The secret with the key that it asks for:  homeport secrets set NAME",
)
@connected
@formatted
@pass_settings
@click.pass_context
def attach(ctx: click.Context, settings: Settings, /, *, engine: str, url: str, model: str, **options: Any) -> None:
    """Use an engine that runs already, such as an Ollama of this machine, at an address that a node reaches.

    openai is any server that speaks OpenAI's language, elsewhere too.
    """
    from homeport.core.secrets import is_name, referenced  # noqa: PLC0415 - start-up time

    key = options["api_key"]
    if key and not is_name(referenced(key) or ""):
        raise click.UsageError(
            "--api-key is the name of a secret, not the key itself, which would stand in Git. Store it with "
            " homeport secrets set NAME  and give  --api-key secret://NAME"
        )
    ctx.exit(serve_at(settings, model, engine=engine, url=url, **options))


@engines.command("list")
@listed
@pass_settings
def list_engines(settings: Settings, watch: bool) -> None:
    """List the engines that are deployed."""
    from homeport.content.importing.engines import APP_NAMES  # noqa: PLC0415 - start-up time

    names = set(APP_NAMES.values())
    client = Client(settings.url)

    def fetch() -> dict[str, Any]:
        found = client.pages("/api/v1/deployments", "deployments")
        return {**found, "deployments": [each for each in found["deployments"] if each["app_name"] in names]}

    show(settings, _LISTING, fetch, watch=watch)


_LISTING = TableListing(
    key="deployments",
    columns=(
        Column("POOL", lambda each: each["name"]),
        Column("ENGINE", lambda each: each["app_name"]),
        Column("SITE", lambda each: each["site"]),
        Column("STATE", lambda each: each["state"], vital=True),
        Column("MODEL", lambda each: str(each["parameters"].get("model_id") or each["parameters"].get("model", ""))),
    ),
    identity=lambda each: str(each["id"]),
    empty="There is no engine yet. Serve a model:  homeport models serve FILE.gguf",
)


def _plan(
    engine: str, model: str, *, mode: str | None, allow_cpu: bool, container_engine: str | None, **texts: str
) -> dict[str, Any]:
    import shutil  # noqa: PLC0415 - start-up time

    from homeport.core.inference.engines.provisioning import plan_engine  # noqa: PLC0415
    from homeport.core.inference.engines.spec import read_engine  # noqa: PLC0415
    from homeport.models.node.machine import probe_machine  # noqa: PLC0415

    section = {"engine": engine, "model": model, "device": "cpu" if allow_cpu else "gpu"}
    section |= {key: value for key, value in {"mode": mode, **texts}.items() if value}
    spec = read_engine(section, {})
    found = container_engine or next((name for name in ("podman", "docker") if shutil.which(name)), "none")
    return plan_engine(spec, probe_machine(spec, os.environ, "" if found == "none" else found))
