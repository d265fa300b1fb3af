"""`homeport tokens`: access tokens and their roles.

Through the API of a running server, or with --data directly on the folder of a stopped one: the first token has to be
created before a server may be reachable from outside.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.moments import MomentParameter
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, show, show_list
from homeport.errors import HomeportError, NotFound, Refused

if TYPE_CHECKING:
    from homeport.core.model.access import ApiToken
    from homeport.core.model.caller import Caller
    from homeport.identity.tokens import Tokens

T = TypeVar("T")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DATABASES: Final = ("central.db", "central/central.db", "site.db")
"""Where a role's folder has its database; that of `homeport up` is in central's sub-folder."""


def offline(command: Decorated) -> Decorated:
    """Adds --data and --store."""
    command = click.option(
        "--store", metavar="URL", help="With --data: the role's database, where it is not SQLite."
    )(command)
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="The data folder of a role that is not running, instead of a server.",
    )(command)


@click.group(cls=Group)
def tokens() -> None:
    """Create, list and revoke access tokens."""


@tokens.command("create")
@click.option("--name", required=True, help="Name of its owner, recorded with all that they do.")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), required=True, help="What they may do.")
@click.option("--site", "sites", multiple=True, help="Limit it to this site; may be repeated.")
@click.option("--expires", type=MomentParameter("ahead"), help="When it expires: 90d, 12h or a date [never].")
@offline
@connected
@formatted
@pass_settings
def create_token(
    settings: Settings,
    *,
    name: str,
    role: str,
    sites: tuple[str, ...],
    expires: datetime | None,
    data: Path | None,
    store: str | None,
) -> None:
    """Create an access token and print it, only this once."""
    if data is not None or store is not None:
        _print_created(settings, _create_offline(data, store, name=name, role=role, sites=sites, expires=expires))
        return
    body = {"name": name, "role": role, "sites": list(sites)}
    if expires is not None:
        body["expires_at"] = expires.isoformat()
    client = Client(settings.url)
    _print_created(settings, client.post("/api/v1/tokens", body))
    _mention_unknown(client, sites)


def _print_created(settings: Settings, created: Json) -> None:
    if settings.is_data:
        print_data(settings, created)
        return
    done(f'token "{created["name"]}" ({created["role"]}) is made; this is the only time it is shown:')
    click.echo(f"\n{created['token']}\n")
    click.echo("  Use it:  homeport login URL , or set HOMEPORT_TOKEN.")


@tokens.command("list")
@offline
@listed
@pass_settings
def list_tokens(settings: Settings, watch: bool, data: Path | None, store: str | None) -> None:
    """List the access tokens; their secrets are not stored anywhere."""
    listing = TableListing(
        key="tokens",
        columns=(
            Column("NAME", lambda item: item["name"]),
            Column("ROLE", lambda item: item["role"]),
            Column("SITES", lambda item: ", ".join(item["sites"]) or "all"),
            Column("USED", lambda item: age(item["last_used_at"], datetime.now(UTC))),
            Column("STATE", _state, vital=True),
            Column("CREATED", lambda item: age(item["created_at"], datetime.now(UTC)), wide=True),
            Column("BY", lambda item: item["created_by"], wide=True),
            Column("ID", lambda item: item["id"]),
        ),
        identity=lambda item: item["id"],
        empty="There is no access token. Make one:  homeport tokens create --role admin --name NAME",
    )
    if data is None and store is None:
        client = Client(settings.url)
        show_list(settings, listing, client, "/api/v1/tokens", watch=watch)
        return

    async def everything(tokens: "Tokens", caller: "Caller") -> Json:
        return {"tokens": [_body(token) for token in await tokens.listed()]}

    show(settings, listing, lambda: _offline(data, store, everything), watch=False)


@tokens.command("revoke")
@click.argument("token")
@offline
@connected
@formatted
@pass_settings
def revoke_token(settings: Settings, token: str, data: Path | None, store: str | None) -> None:
    """Revoke a token, by its name or id. It is refused from then on, on open connections too."""
    if data is None and store is None:
        revoked = Client(settings.url).delete(f"/api/v1/tokens/{token}")
    else:

        async def revoke(tokens: "Tokens", caller: "Caller") -> Json:
            return _body(await tokens.revoke(caller, token))

        revoked = _offline(data, store, revoke, action="tokens.revoke", target=token)
    if settings.is_data:
        print_data(settings, revoked)
        return
    done(f'token "{revoked["name"]}" is revoked')


def _mention_unknown(client: Client, sites: tuple[str, ...]) -> None:
    """Warns about unknown sites. They may join later, so the token is created anyway."""
    for site in sites:
        try:
            client.get(f"/api/v1/sites/{site}")
        except NotFound:
            click.echo(f"{click.style('!', fg='yellow')} There is no site {site} yet.  homeport sites list", err=True)
        except HomeportError:
            return


def _create_offline(
    data: Path | None,
    store: str | None,
    *,
    name: str,
    role: str,
    sites: tuple[str, ...],
    expires: datetime | None,
) -> Json:
    async def create(tokens: "Tokens", caller: "Caller") -> Json:
        from homeport.core.model.caller import Role  # noqa: PLC0415 - start-up time
        from homeport.vocabulary import SiteName  # noqa: PLC0415

        scope = [SiteName(site) for site in sites]
        created = await tokens.create(caller, name=name, role=Role(role), sites=scope, expires_at=expires)
        return {**_body(created.token), "token": created.text}

    return _offline(data, store, create, action="tokens.create", target=name)


def _offline(
    data: Path | None,
    store_url: str | None,
    work: "Callable[[Tokens, Caller], Awaitable[T]]",
    *,
    action: str = "",
    target: str = "",
) -> T:
    """Works on the database itself, and records it in the audit trail there."""
    import anyio  # noqa: PLC0415 - start-up time

    from homeport.adapters.store.open import open_store  # noqa: PLC0415
    from homeport.adapters.system import SystemClock  # noqa: PLC0415
    from homeport.cli.roles.logs import configure_logs  # noqa: PLC0415
    from homeport.core.model.caller import Caller, Role  # noqa: PLC0415
    from homeport.identity.audit import open_auditor  # noqa: PLC0415
    from homeport.identity.tokens import Tokens  # noqa: PLC0415

    configure_logs("warning", None)
    url, clock = store_url or str(_database(data or Path())), SystemClock()
    caller = Caller("local", Role.ADMIN)

    async def run() -> T:
        async with open_store(url) as store, open_auditor(store, clock) as auditor:
            result = await work(Tokens(store, clock), caller)
            if action:
                await auditor.note_by(caller, action, target)
            return result

    try:
        return anyio.run(run)
    except Refused as error:
        raise Refused(
            str(error), hint="A running server does this itself: leave out --data, and use --url if it is elsewhere."
        ) from error


def _database(data: Path) -> Path:
    """The existing one; where there is none yet, the one that central will create."""
    found = next((data / name for name in DATABASES if (data / name).exists()), None)
    if found is None:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return (found or data / DATABASES[0]).resolve()


def _body(token: "ApiToken") -> Json:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "sites": list(token.sites),
        "created_at": token.created_at.isoformat(),
        "created_by": token.created_by,
        "expires_at": None if token.expires_at is None else token.expires_at.isoformat(),
        "revoked_at": None if token.revoked_at is None else token.revoked_at.isoformat(),
        "last_used_at": None if token.last_used_at is None else token.last_used_at.isoformat(),
    }


def _state(item: Item) -> str:
    if item["revoked_at"]:
        return "revoked"
    if not item["expires_at"]:
        return "good"
    expires = datetime.fromisoformat(item["expires_at"])
    return "expired" if expires <= datetime.now(UTC) else f"until {expires:%Y-%m-%d}"
