"""Shell completion: names from the server, if it responds quickly, else nothing.

A completion that waits, or prints an error, is worse than none.
"""

from collections.abc import Callable
from typing import Final

import click
from click.shell_completion import CompletionItem

from homeport.cli.api.client import Client, Json
from homeport.cli.options import Settings
from homeport.errors import HomeportError

PATIENCE_SECONDS: Final = 0.5
OFFERED_MAX: Final = 1_000


def _complete(
    path: str, key: str, fields: str | None, words: Callable[[Json], list[str]]
) -> Callable[..., list[CompletionItem]]:
    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        settings = ctx.find_object(Settings) or Settings()
        try:
            items = Client(settings.url, timeout_seconds=PATIENCE_SECONDS).get(
                path, fields=fields, limit=OFFERED_MAX
            )[key]
        except HomeportError:
            return []
        offered = sorted({word for item in items for word in words(item)})
        return [CompletionItem(word) for word in offered if word.startswith(incomplete)]

    return complete


def complete_parameters(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The parameters of the app that precedes it on the command line, with their defaults."""
    settings = ctx.find_object(Settings) or Settings()
    # While `--set` has no value yet, click leaves the app among what it has not understood.
    name, _, version = str(ctx.params.get("app") or next(iter(ctx.args), "")).partition("@")
    client = Client(settings.url, timeout_seconds=PATIENCE_SECONDS)
    try:
        apps = client.get("/api/v1/apps", app_name=name, version=version or None)["apps"]
        found = client.get(f"/api/v1/apps/{apps[0]['id']}")["parameters"] if apps else {}
    except HomeportError:
        return []
    return [
        CompletionItem(
            f"{parameter}=", help=f"default {default}" if (default := _default(given)) is not None else None
        )
        for parameter, given in sorted(found.items())
        if f"{parameter}=".startswith(incomplete)
    ]


def _default(given: object) -> object:
    return given.get("value") if isinstance(given, dict) else given


complete_apps = _complete(
    "/api/v1/apps", "apps", "app_name,version", lambda app: [app["app_name"], f"{app['app_name']}@{app['version']}"]
)
PATHS: Final = (".", "/", "~")


def complete_apps_and_paths(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What can be deployed: apps of the catalog, and files and folders, which the shell knows itself."""
    found = [] if incomplete.startswith(PATHS) else complete_apps(ctx, parameter, incomplete)
    return found or [CompletionItem(incomplete, type="file")]


complete_sites = _complete("/api/v1/sites", "sites", "name", lambda site: [site["name"]])
complete_nodes = _complete("/api/v1/nodes", "nodes", "id", lambda node: [node["id"]])
complete_deployments = _complete(
    "/api/v1/deployments", "deployments", "name,site", lambda item: [item["name"], f"{item['name']}@{item['site']}"]
)
complete_jobs = _complete("/api/v1/jobs", "jobs", "id", lambda item: [item["id"]])
complete_pools = _complete("/v2/pools", "pools", None, lambda item: [item["pool_id"]])
complete_pipelines = _complete("/api/v1/pipelines", "pipelines", "name", lambda item: [item["name"]])
complete_runs = _complete("/api/v1/pipeline-runs", "runs", "id", lambda item: [item["id"]])
complete_rollouts = _complete("/api/v1/rollouts", "rollouts", "id,name", lambda item: [item["id"], item["name"]])


def complete_explained(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Deployments; after `job/` and `run/` jobs and runs."""
    kind, slash, name = incomplete.partition("/")
    complete = {"job": complete_jobs, "run": complete_runs}.get(kind.removesuffix("s")) if slash else None
    if complete is None:
        kinds = [CompletionItem(each) for each in ("job/", "run/", "task/") if each.startswith(incomplete)]
        return [*complete_deployments(ctx, parameter, incomplete), *(kinds if incomplete else [])]
    return [CompletionItem(f"{kind}/{each.value}") for each in complete(ctx, parameter, name)]
