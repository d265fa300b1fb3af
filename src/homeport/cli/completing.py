"""What the shell offers after a TAB: names from the server, if it answers quickly, else nothing.

A completion that waits, or prints an error, is worse than none.
"""

from collections.abc import Callable
from typing import Final

import click
from click.shell_completion import CompletionItem

from homeport.cli.client import Client, Json
from homeport.cli.options import Settings
from homeport.errors import HomeportError

PATIENCE_SECONDS: Final = 0.5


def _complete(path: str, key: str, words: Callable[[Json], list[str]]) -> Callable[..., list[CompletionItem]]:
    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        settings = ctx.find_object(Settings) or Settings()
        try:
            items = Client(settings.url, timeout_seconds=PATIENCE_SECONDS).get(path)[key]
        except HomeportError:
            return []
        offered = sorted({word for item in items for word in words(item)})
        return [CompletionItem(word) for word in offered if word.startswith(incomplete)]

    return complete


complete_apps = _complete(
    "/api/v1/apps", "apps", lambda app: [app["app_name"], f"{app['app_name']}@{app['version']}"]
)
complete_sites = _complete("/api/v1/sites", "sites", lambda site: [site["name"]])
complete_nodes = _complete("/api/v1/nodes", "nodes", lambda node: [node["id"]])
complete_deployments = _complete(
    "/api/v1/deployments", "deployments", lambda item: [item["name"], f"{item['name']}@{item['site']}"]
)
complete_rollouts = _complete("/api/v1/rollouts", "rollouts", lambda item: [item["id"], item["name"]])
