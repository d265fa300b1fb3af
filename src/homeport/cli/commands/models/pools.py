"""`homeport pools`: engines that serve models, how busy they are, and taking them out of service."""

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_pools
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, print_facts, print_table, show


@click.group(cls=Group)
def pools() -> None:
    """List, show, drain and reload pools: engines that serve a model.

    A pool appears when an engine is handed over:  homeport models serve ./model.gguf
    """


def _models(item: Item) -> str:
    return ", ".join(sorted({name for replica in item["replicas"] for name in replica["models"]}))


def _state(item: Item) -> str:
    if item["draining"] or item["ready"]:
        return "draining" if item["draining"] else "ready"
    if item["metrics"].get("preparation"):
        return "preparing" if all(each["status"] != "failed" for each in _steps(item)) else "failed"
    is_unloaded = item["replicas"] and all(each["loading"] == "unloaded" for each in item["replicas"])
    return "unloaded" if is_unloaded else "not ready"


def _steps(item: Item) -> list[Item]:
    return list(item["metrics"].get("preparation") or ())


def _note(item: Item) -> str:
    running = next((each for each in _steps(item) if each["status"] == "running"), None)
    if running is None:
        return str(item["last_error"] or "")
    total, done = running.get("bytes_total"), running.get("bytes_done", 0)
    return f"{running['description']}{f' {100 * done // total} %' if total and done else ''}"


LISTING = TableListing(
    key="pools",
    columns=(
        Column("POOL", lambda item: item["pool_id"]),
        Column("STATE", _state, vital=True),
        Column("MODELS", _models),
        Column("REPLICAS", lambda item: str(len(item["replicas"]))),
        Column("BUSY", lambda item: f"{item['metrics']['active_leases']}/{item['metrics']['slots_total']}"),
        Column("WAITING", lambda item: str(item["metrics"]["queue_depth"])),
        Column("NOTE", _note),
    ),
    identity=lambda item: item["pool_id"],
    empty="There is no pool. Serve a model:  homeport models serve ./model.gguf",
)


@pools.command("list")
@listed
@pass_settings
def list_pools(settings: Settings, /, *, watch: bool) -> None:
    """List the pools."""
    client = Client(settings.url)
    show(settings, LISTING, lambda: client.get("/v2/pools"), watch=watch)


@pools.command("show")
@click.argument("pool", shell_complete=complete_pools)
@connected
@formatted
@pass_settings
def show_pool(settings: Settings, pool: str) -> None:
    """Show one pool and each of its replicas."""
    found = Client(settings.url).get(f"/v2/pools/{pool}")
    if settings.is_data:
        print_data(settings, found)
        return
    metrics = found["metrics"]
    print_facts(
        [
            ("pool", found["pool_id"]),
            ("state", _state(found)),
            ("waiting", str(metrics["queue_depth"])),
            ("slots", f"{metrics['active_leases']} of {metrics['slots_total']} in use"),
            ("problem", found["last_error"] or ""),
            *((each["kind"], f"{each['status']}: {each['description']}") for each in _steps(found)),
        ]
    )
    click.echo()
    columns = (
        Column("REPLICA", lambda item: item["replica_id"]),
        Column("ENGINE", lambda item: f"{item['engine']} {item['engine_version']}".strip()),
        Column("MODELS", lambda item: ", ".join(item["models"])),
        Column("NODE", lambda item: item["node_id"] or ""),
        Column("READY", lambda item: "yes" if item["ready"] else "no"),
        Column("BUSY", lambda item: f"{item['active_leases']}/{item['slots_total']}"),
        Column("TOKENS/S", lambda item: f"{item['tokens_per_second']:.0f}" if item["tokens_per_second"] else "-"),
        Column("NOTE", lambda item: item["last_error"] or ""),
    )
    print_table(settings, columns, found["replicas"])


@pools.command("drain")
@click.argument("pool", shell_complete=complete_pools)
@click.option("--deadline", default=60.0, show_default=True, metavar="SECONDS", help="What runs then is cancelled.")
@click.option("--off", is_flag=True, help="Take tasks again.")
@connected
@formatted
@pass_settings
def drain(settings: Settings, /, *, pool: str, deadline: float, off: bool) -> None:
    """Send new tasks elsewhere, and let those under way finish."""
    client = Client(settings.url)
    if off:
        client.delete(f"/v2/pools/{pool}/drain")
        done(f"pool {pool} accepts tasks again")
        return
    client.post(f"/v2/pools/{pool}/drain", {"deadline_ms": int(deadline * 1000)})
    done(f"pool {pool} accepts no new tasks; undo it with  homeport pools drain {pool} --off")


@pools.command("reload")
@click.argument("pool", shell_complete=complete_pools)
@click.argument("model", metavar="MODEL_REF")
@connected
@formatted
@pass_settings
def reload(settings: Settings, pool: str, model: str) -> None:
    """Serve another model. If that fails, the old one keeps serving."""
    Client(settings.url, timeout_seconds=300).post(f"/v2/pools/{pool}/reload", {"new_model_ref": model})
    done(f"pool {pool} serves {model}")
