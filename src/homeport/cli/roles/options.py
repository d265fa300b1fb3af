"""Options that the roles share, and the checks before one is started."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from homeport.cli.roles.addresses import ORIGIN, ListenAddress, require_free, require_loopback
from homeport.cli.roles.config_file import keep_tuned
from homeport.core.model.engines import AUTO, RUNTIMES
from homeport.core.node.permissions import Permission
from homeport.core.values.addresses import is_loopback
from homeport.errors import HomeportError, Refused
from homeport.lazy_dataclass import dataclass

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def data_option(default: Path) -> Callable[[Decorated], Decorated]:
    shown = str(default).replace(str(Path.home()), "~", 1)
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=default,
        help=f"Where it keeps its state [{shown}].",
    )


def home(name: str) -> Path:
    return Path.home() / ".homeport" / name


runtime_option = click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    default=AUTO,
    show_default=True,
    help="What runs the apps; auto takes Podman, else Docker, else containerd.",
)


def allow_option(default: str) -> Callable[[Decorated], Decorated]:
    names = ", ".join(each + ("[=/DIR]" if each is Permission.HOST_PATHS else "") for each in Permission)
    return click.option(
        "--allow",
        multiple=True,
        default=(default,),
        metavar="LIST",
        help=f"What apps may ask of this machine: {names}; all or none [{default}].",
    )


poll_option = click.option(
    "--poll",
    type=click.FloatRange(min=0.1, max=86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How often a remote repository is polled when no notification arrives.",
)


otlp_option = click.option(
    "--otlp",
    "otlp_url",
    metavar="URL",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    help="Send traces to this collector (OTLP over HTTP).",
)
metrics_option = click.option(
    "--metrics",
    type=click.Choice(["token", "open"]),
    help="Who may read /metrics: callers with a token, or everyone who can connect [open on loopback, else token].",
)


tls_option = click.option("--tls", is_flag=True, help="Serve https on loopback too; elsewhere it always is.")


@dataclass(frozen=True, slots=True)
class PeopleOptions:
    """Options of the HTTP API for people and web pages."""

    tls_files: tuple[Path, Path] | None
    open_metrics: bool | None
    """None: it follows from the address."""
    cors_origins: tuple[str, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """For the settings of central and of a site."""
        return {
            "tls_files": self.tls_files,
            "open_metrics": self.open_metrics,
            "cors_origins": self.cors_origins,
        }


def people_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --tls-cert, --tls-key, --metrics and --cors, which the command receives as `people`."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = (
        click.option("--tls-cert", type=file, help="Your own certificate with its chain (PEM), for people."),
        click.option("--tls-key", type=file, help="The key that belongs to it (PEM)."),
        metrics_option,
        click.option(
            "--cors",
            type=ORIGIN,
            multiple=True,
            help="Allow web pages of this origin to call the API; * allows all to read. May be repeated [none].",
        ),
    )

    @wraps(command)
    def gathered(
        *, tls_cert: Path | None, tls_key: Path | None, metrics: str | None, cors: tuple[str, ...], **others: Any
    ) -> None:
        open_metrics = None if metrics is None else metrics == "open"
        command(people=PeopleOptions(_tls_files(tls_cert, tls_key), open_metrics, cors), **others)

    decorated: Callable[..., None] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


strategy_option = click.option(
    "--job-strategy",
    default="least-loaded",
    show_default=True,
    metavar="NAME",
    expose_value=False,
    callback=keep_tuned,
    help="Which node gets a job: first-fit, round-robin, least-loaded, gpu-aware, spread, or package.module:Class.",
)


def connection_options(command: Decorated) -> Decorated:
    """Connection limits: --connections and --connections-per-address."""
    for option in reversed(
        (
            click.option(
                "--connections",
                type=click.IntRange(min=10),
                default=12_000,
                show_default=True,
                metavar="N",
                help="How many may be open at once; a site has two or three.",
            ),
            click.option(
                "--connections-per-address",
                type=click.IntRange(min=1),
                default=200,
                show_default=True,
                metavar="N",
                help="How many of them from one address; many sites behind one need more.",
            ),
        )
    ):
        command = option(command)
    return command


def _tls_files(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both or neither.")
    return None if certificate is None or key is None else (certificate.resolve(), key.resolve())


def scheme(http: ListenAddress, *, tls: bool, files: tuple[Path, Path] | None) -> str:
    return "https" if tls or files is not None or not is_loopback(http.host) else "http"


def require_token_for(http: ListenAddress, database: Path | None) -> None:
    """Refuses early what could only be refused later: an empty data folder has no token. None is a database whose
    content only its server knows."""
    if is_loopback(http.host) or database is None or database.exists():
        return
    # In an empty folder, --data means central's database.
    place = f"--data {database.parent}" if database.name == "central.db" else f"--store {database}"
    raise Refused(
        f"Refusing to listen on {http.host} without access control.",
        hint=f"Create a token first:  homeport tokens create --role admin --name NAME {place}\n"
        f"  or keep it local:      --http 127.0.0.1:{http.port}",
    )


def require_addresses(*, guarded: Sequence[str] = (), **addresses: ListenAddress) -> None:
    """Each by its option's name: free, and on loopback unless access to it is controlled."""
    for option, address in addresses.items():
        if option not in guarded:
            require_loopback(address, f"--{option}")
    for option, address in addresses.items():
        require_free(address, f"--{option}")


def prepare_folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if data.stat().st_uid == os.geteuid():
            data.chmod(0o700)  # also for an existing folder: it contains keys and the database
    except OSError as error:
        raise HomeportError(
            f"Cannot use {data} for data: {error.strerror}.",
            hint="Give a folder that you may write to with --data DIR.",
        ) from error
    return data.resolve()
