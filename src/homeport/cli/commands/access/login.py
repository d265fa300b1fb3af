"""`homeport login`: checks a token, and stores server and token as a context."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.contexts import Configuration, Context, read, write
from homeport.cli.terminal.output import done
from homeport.errors import InvalidInput, Refused


@click.command()
@click.argument("url")
@click.option("--token", help="The access token; - reads it from standard input. Prompted for when omitted.")
@click.option("--name", metavar="CONTEXT", help="What to call this place [the host's name].")
@click.option(
    "--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The authority to trust (PEM)."
)
@click.option("--pin", metavar="sha256:…", help="The key of the server, as it prints it at its start.")
def login(url: str, token: str | None, name: str | None, ca: Path | None, pin: str | None) -> None:
    """Log in to a server and make it the current context.

    The token is stored in the configuration file, which only you can read.
    """
    if ca is not None and pin is not None:
        raise click.UsageError("--ca and --pin are two ways to know the server: give one of them.")
    url = url.rstrip("/")
    place = Context(url, "", ca.read_text("utf-8", "replace") if ca is not None else "", pin or "")
    text, me = _identify(place, token)
    configuration = read()
    called = name or _name_of(url)
    contexts = {**configuration.contexts, called: Context(url, text, place.ca, place.pin)}
    write(Configuration(called, contexts))
    limit = f", limited to {', '.join(me['sites'])}" if me["sites"] else ""
    done(f"logged in to {url} as {me['name']} ({me['role']}{limit})")
    click.echo(f"  context {called} is now the current one; see  homeport contexts list")


def _identify(place: Context, token: str | None) -> tuple[str, Json]:
    """The token to store, and its identity. Where none is needed, none is prompted for."""
    if token is None:
        try:
            return "", Client(place.url, context=place).get("/api/v1/tokens/self")
        except Refused as error:
            if error.code != "refused" or "access token" not in str(error):
                raise
        token = _asked()
    text = sys.stdin.readline().strip() if token == "-" else token.strip()
    if not text.startswith("hp_") or not text.isascii() or not text.isprintable():
        raise InvalidInput("That is not an access token: it begins with hp_ .", hint="Copy all of it.")
    given = Context(place.url, text, place.ca, place.pin)
    return text, Client(place.url, context=given).get("/api/v1/tokens/self")


def _asked() -> str:
    if sys.stdin.isatty():
        answer: str = click.prompt("Access token", hide_input=True)
        return answer
    return "-"


def _name_of(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or "default"
    return host if parts.port is None else f"{host}-{parts.port}"
