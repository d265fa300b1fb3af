"""Waits until a drained node is empty, and shows what is left on it."""

import time
from typing import Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.exits import Exit
from homeport.cli.terminal.output import done

LOOK_SECONDS: Final = 0.5
SHOWN_MAX: Final = 10


def wait_until_empty(client: Client, node: Json, *, timeout_seconds: float) -> Exit:
    deadline = time.monotonic() + timeout_seconds
    shown: set[str] = set()
    while True:
        left = _left_on(client, node)
        for name in sorted({item["name"] for item in left} - shown)[:SHOWN_MAX]:
            click.echo(f"  {name} is still there")
            shown.add(name)
        if not left:
            done(f"node {node['id']} is empty")
            return Exit.DONE
        if time.monotonic() >= deadline:
            for item in left[:SHOWN_MAX]:
                click.echo(f"  {item['name']}: {item['note'] or item['state']}", err=True)
            click.echo(f"Node {node['id']} is not empty yet; draining continues in the background.", err=True)
            return Exit.TIMED_OUT
        time.sleep(LOOK_SECONDS)


def _left_on(client: Client, node: Json) -> list[Json]:
    found = client.pages(
        "/api/v1/deployments", "deployments", site=node["site"], node=node["id"], fields="name,note,state,instances"
    )
    return [
        item
        for item in found["deployments"]
        if any(each["node_id"] == node["id"] and each["state"] != "DELETED" for each in item["instances"])
    ]
