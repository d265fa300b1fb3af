"""`homeport identity`: the machines of the fleet, decisions about them, and the certificate authority."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_sites
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age, duration
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, show
from homeport.errors import HomeportError, NotFound


@click.group(cls=Group)
def identity() -> None:
    """Decide who belongs to the fleet; rotate its authority."""


site_option = click.option(
    "--site", help="Its nodes' identities, which the site decides about.", shell_complete=complete_sites
)


@identity.command("list")
@site_option
@listed
@pass_settings
def list_identities(settings: Settings, watch: bool, site: str | None) -> None:
    """List accepted, pending and removed machines; of a site's nodes with --site."""
    show_identities(settings, watch=watch, site=site)


@identity.command("remove")
@click.argument("name")
@site_option
@connected
@pass_settings
def remove(settings: Settings, name: str, site: str | None) -> None:
    """Remove a machine at once, or deny its request. Its workloads keep running; it is no longer trusted."""
    Client(settings.url).delete(f"{path_of(site)}/{name}")
    done(f"removed the identity of {name}")


@identity.command("ca")
@connected
@pass_settings
def authority_certificate(settings: Settings) -> None:
    """Print the certificate of the authority behind this server (PEM), for podman, docker, curl and others."""
    pem = Client(settings.url).authority()
    if not pem:
        raise NotFound(
            f"{settings.url} needs none: it has no TLS, or a certificate that this machine trusts anyway.",
            hint="Log in with --pin or --ca where a server has a certificate of its own.",
        )
    click.echo(pem, nl=False)


@identity.command("rotate")
@click.argument("step", type=click.Choice(("begin", "switch", "finish", "status")), default="status")
@click.option("--force", is_flag=True, help="Switch or finish even if some machines are not ready.")
@connected
@formatted
@pass_settings
def rotate(settings: Settings, step: str, force: bool) -> None:
    """Rotate the authority's own key without downtime: begin, wait, switch, wait, finish."""
    client = Client(settings.url)
    if step == "status":
        found = client.get("/api/v1/authority")
    else:
        found = client.post("/api/v1/authority/rotation", {"step": step, "force": force})
    if settings.is_data:
        print_data(settings, found)
        return
    done(f"authority of {found['domain']}: {found['phase']}, {found['anchors']} in the bundle")
    click.echo(f"  {_advice(found)}")


def _advice(found: Json) -> str:
    phase, wait, behind = found["phase"], found.get("wait_seconds", 0), found["behind"]
    if phase == "announced":
        when = f"In {duration(wait)} every" if wait else "Every"
        return (
            f"{when} site and node that is connected has fetched the new root; then:  homeport identity rotate switch"
        )
    if phase == "switched" and behind:
        return (
            f"{len(behind)} still hold a certificate of the old root; they renew by themselves. "
            "Look again:  homeport identity rotate status"
        )
    return _NEXT[phase]


_NEXT = {
    "outside": "Another authority certifies; its key is rotated there, and svid-ca.pem follows.",
    "steady": "Begin with  homeport identity rotate begin",
    "switched": "All certificates are renewed; drop the old root:  homeport identity rotate finish",
}


@identity.command("issue")
@click.option("--client", "name", required=True, metavar="NAME", help="What the client is called in its SPIFFE ID.")
@click.option(
    "--out", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Where the files go."
)
@connected
@pass_settings
def issue(settings: Settings, name: str, folder: Path) -> None:
    """Certify a third-party Margo client: writes svid-cert.pem, svid-key.pem and svid-ca.pem.

    The key is created here and does not leave this machine.
    """
    from homeport.adapters.identity import bundle as bundles  # noqa: PLC0415 - start-up time
    from homeport.cli.local.issuing import anchors_pem, fresh_request, write_files  # noqa: PLC0415

    existing = [path for path in (folder / "svid-key.pem", folder / "svid-cert.pem") if path.exists()]
    if existing:
        raise HomeportError(f"{existing[0]} exists already.", hint="Choose another folder with --out.")
    key, csr = fresh_request(name)
    answer = Client(settings.url).post("/api/v1/identities", {"name": name, "csr": csr})
    bundle = bundles.decode(_json(answer["bundle"]), answer["domain"])
    write_files(folder, key=key, chain=answer["chain"].encode(), anchors=anchors_pem(bundle))
    done(f"issued {answer['spiffe_id']}")
    click.echo(f"  {shlex.quote(str(folder))}: svid-cert.pem, svid-key.pem, svid-ca.pem")


def _json(value: Item) -> bytes:
    import json  # noqa: PLC0415 - start-up time

    return json.dumps(value).encode()


def path_of(site: str | None) -> str:
    """The API path of identities: of this server, or through central those of a site."""
    return "/api/v1/identities" if site is None else f"/api/v1/sites/{site}/nodes/identities"


def show_identities(
    settings: Settings,
    *,
    watch: bool,
    kinds: tuple[str, ...] = (),
    standing: str = "",
    site: str | None = None,
) -> None:
    """The table of `sites pending`, `nodes pending` and `identity list`."""
    listing = TableListing(
        key="identities",
        columns=(
            Column("NAME", lambda item: item["name"]),
            Column("KIND", lambda item: item["kind"]),
            Column("STANDING", lambda item: item["standing"]),
            Column("CERTIFICATE", _left),
            Column("ASKED", lambda item: age(item["requested_at"], datetime.now(UTC))),
            Column("FROM", lambda item: item["address"]),
            Column("DECIDED BY", lambda item: item["decided_by"] or "-"),
            Column("KEY", lambda item: item["key"]),
            Column("SPIFFE ID", lambda item: item["spiffe_id"], wide=True),
        ),
        identity=lambda item: item["name"],
        empty="No request is waiting for approval." if standing else "No machine has joined with an identity yet.",
    )
    client = Client(settings.url)

    def look() -> Item:
        kind = kinds[0] if len(kinds) == 1 else None
        answer = client.pages(path_of(site), "identities", limit=settings.limit, standing=standing or None, kind=kind)
        # The previous server version does not support these filters.
        wanted = [
            item
            for item in answer["identities"]
            if (not kinds or item["kind"] in kinds) and (not standing or item["standing"] == standing)
        ]
        return {**answer, "identities": wanted}

    show(settings, listing, look, watch=watch)


def approve_identity(settings: Settings, name: str, key: str | None, site: str | None = None) -> None:
    """With `key`, only if the request has that key: any machine can claim a name."""
    approved = Client(settings.url).post(f"{path_of(site)}/{name}/approve", {} if key is None else {"key": key})
    done(f"approved {name}, key {approved['key']}")


def _left(item: Item) -> str:
    if item["not_after"] is None:
        return "-"
    ends = datetime.fromisoformat(item["not_after"])
    now = datetime.now(UTC)
    return f"{age(now.isoformat(), ends)} left" if ends > now else "expired"
