"""`homeport chat`: a conversation with a model, streamed into the terminal."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.lazy import MayBeEmpty
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.output import print_data, printable
from homeport.errors import HomeportError, NotFound


@click.command()
@click.argument("message", required=False)
@click.option("--model", default="", help="The model; the first one there is when left out.")
@click.option("--system", type=MayBeEmpty(), default="", help="The system prompt, sent before the first message.")
@click.option("--max-tokens", type=click.IntRange(1, 50_000), help="The longest answer.")
@connected
@formatted
@pass_settings
def chat(settings: Settings, /, *, message: str | None, model: str, system: str, max_tokens: int | None) -> None:
    """Talk to a model in the terminal.

    With a MESSAGE it answers once; without one it asks for the next until Ctrl-D. The answer appears as it is
    generated.
    """
    client = Client(settings.url)
    body: Json = {"model": chosen_model(client, model), "stream": not settings.is_data}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    while True:
        said = message if message is not None else _ask()
        if said is None:
            return
        messages.append({"role": "user", "content": said})
        if settings.is_data:
            answer = client.post("/v1/chat/completions", {**body, "messages": messages})
            print_data(settings, answer)
            messages.append(answer["choices"][0]["message"])
        else:
            messages.append({"role": "assistant", "content": _print_answer(client, {**body, "messages": messages})})
        if message is not None:
            return


def chosen_model(client: Client, wanted: str) -> str:
    """The wanted one, or the first there is. Raises NotFound."""
    found = [str(each["id"]) for each in client.get("/v1/models")["data"]]
    if wanted in found or (found and not wanted):
        return wanted or found[0]
    # A pool that is drained or not ready yet serves none; the server says why.
    pools = client.get("/v2/pools")["pools"]
    known = [str(model) for pool in pools for replica in pool["replicas"] for model in replica["models"]]
    if wanted in known or (known and not wanted):
        return wanted or known[0]
    if wanted and _is_in_catalog(client, wanted):
        return wanted
    if not known:
        raise NotFound("No model is served.", hint="Serve one:  homeport models serve ./model.gguf")
    shown = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
    raise NotFound(f'No pool serves "{wanted}".', hint=f"Available: {shown}")


def _is_in_catalog(client: Client, model: str) -> bool:
    """Nothing serves it, and the server says how to change that."""
    try:
        found = client.get("/v2/catalog/models")["models"]
    except NotFound:  # a site has no catalog
        return False
    return any(model in {each["id"], each["source_url"]} for each in found)


def _ask() -> str | None:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip() or None
    try:
        return str(click.prompt("you", prompt_suffix="> "))
    except click.Abort:
        click.echo()
        return None


def _print_answer(client: Client, body: Json) -> str:
    said = []
    for text in _texts(client, body):
        click.echo(printable(text), nl=False)
        said.append(text)
    click.echo()
    return "".join(said)


def _texts(client: Client, body: Json) -> Iterator[str]:
    for line in client.converse("/v1/chat/completions", body):
        if not line.startswith(b"data: {"):
            continue
        chunk: Any = json.loads(line[6:])
        if "error" in chunk:
            raise HomeportError(str(chunk["error"].get("message")))
        for choice in chunk.get("choices", ()):
            yield choice.get("delta", {}).get("content") or ""
