"""Contexts: servers and credentials, in one file that only its owner can read.

Credentials belong to a server: they are sent to the URL they were given for and to no other.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import click

from homeport.cli.lazy import Group
from homeport.cli.options import Settings, formatted, pass_settings
from homeport.errors import HomeportError, InvalidInput, NotFound, Problem
from homeport.lazy_dataclass import dataclass

CONTEXT_VARIABLE: Final = "HOMEPORT_CONTEXT"
TOKEN_VARIABLE: Final = "HOMEPORT_TOKEN"
TRACE_VARIABLE: Final = "TRACEPARENT"


@dataclass(frozen=True, slots=True)
class Context:
    url: str
    token: str = ""
    ca: str = ""
    """PEM of the authority to trust; empty for the system's."""
    pin: str = ""
    """The pin of the server's key, instead of an authority."""


@dataclass(frozen=True, slots=True)
class Configuration:
    current: str = ""
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def chosen(self) -> Context | None:
        """The context named by --context, else the current one."""
        name = os.environ.get(CONTEXT_VARIABLE, "")
        if name and name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFound(
                f'There is no context "{name}".', hint=f"Known contexts:  {known} . Make one:  homeport login URL"
            )
        return self.contexts.get(name or self.current)


def path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "homeport" / "config.yaml"


def read() -> Configuration:
    file = path()
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError) as error:
        raise HomeportError(f"Cannot read {file}: {error}.") from error
    import yaml  # noqa: PLC0415 - start-up time

    try:
        found = yaml.safe_load(text) or {}
        contexts = {str(name): Context(**entry) for name, entry in (found.get("contexts") or {}).items()}
        return Configuration(str(found.get("current") or ""), contexts)
    except (yaml.YAMLError, TypeError, AttributeError) as error:
        raise InvalidInput(
            problems=[Problem("", "is not a configuration of Homeport", path=str(file))],
            hint="Fix or delete the file, then log in again.",
        ) from error


def write(configuration: Configuration) -> None:
    """Atomic, and never readable by others, not even for a moment."""
    import tempfile  # noqa: PLC0415 - start-up time

    import yaml  # noqa: PLC0415

    contexts = {
        name: {key: value for key in ("url", "token", "ca", "pin") if (value := getattr(context, key))}
        for name, context in sorted(configuration.contexts.items())
    }
    text = yaml.safe_dump({"current": configuration.current, "contexts": contexts}, sort_keys=False)
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".config-")  # made with mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise HomeportError(f"Cannot write {file}: {error.strerror}.") from error


def credentials_for(url: str) -> Context:
    """The credentials for the server at `url`, and how to authenticate it."""
    configuration = read()
    chosen = configuration.chosen()
    candidates = [*([chosen] if chosen is not None else []), *configuration.contexts.values()]
    wanted = url.rstrip("/")
    found = next((each for each in candidates if each.url == wanted), Context(wanted))
    token = os.environ.get(TOKEN_VARIABLE)
    return found if token is None else Context(found.url, token.strip(), found.ca, found.pin)


def trace_above() -> str:
    """The trace that this command belongs to, as passed on by CI systems and wrappers; "" for none."""
    return os.environ.get(TRACE_VARIABLE, "").strip()


@click.group(cls=Group)
def contexts() -> None:
    """List, choose and forget the places you have logged in to."""


@contexts.command("list")
@formatted
@pass_settings
def list_contexts(settings: Settings) -> None:
    """List the contexts."""
    from homeport.cli.terminal.output import Column, TableListing, show  # noqa: PLC0415 - start-up time

    def fetch() -> dict[str, Any]:
        configuration = read()
        return {
            "contexts": [
                {
                    "name": name,
                    "url": context.url,
                    "current": name == configuration.current,
                    "token": bool(context.token),
                    "trust": context.pin or ("its own authority" if context.ca else "the system"),
                }
                for name, context in sorted(configuration.contexts.items())
            ]
        }

    listing = TableListing(
        key="contexts",
        columns=(
            Column("CURRENT", lambda item: "*" if item["current"] else ""),
            Column("CONTEXT", lambda item: item["name"]),
            Column("URL", lambda item: item["url"]),
            Column("TOKEN", lambda item: "yes" if item["token"] else "-"),
            Column("TRUSTS", lambda item: item["trust"], wide=True),
        ),
        identity=lambda item: item["name"],
        empty="You are not logged in. Run:  homeport login URL",
    )
    show(settings, listing, fetch, watch=False)


@contexts.command("use")
@click.argument("name")
def use_context(name: str) -> None:
    """Make a context the current one."""
    from homeport.cli.terminal.output import done  # noqa: PLC0415 - start-up time

    configuration = read()
    context = _named(configuration, name)
    write(Configuration(name, configuration.contexts))
    done(f"commands now use {context.url}")


@contexts.command("remove")
@click.argument("name")
def remove_context(name: str) -> None:
    """Remove a context with its token; the token itself stays valid until it is revoked."""
    from homeport.cli.terminal.output import done  # noqa: PLC0415 - start-up time

    configuration = read()
    _named(configuration, name)
    left = {other: context for other, context in configuration.contexts.items() if other != name}
    write(Configuration("" if configuration.current == name else configuration.current, left))
    done(f"forgot context {name}")


def _named(configuration: Configuration, name: str) -> Context:
    if name not in configuration.contexts:
        raise NotFound(f'There is no context "{name}".', hint="List them:  homeport contexts list")
    return configuration.contexts[name]
