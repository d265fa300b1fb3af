"""Options that the roles share, and the checks that come before one is started."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from homeport.cli.addresses import Address, require_free, require_loopback
from homeport.core.addresses import is_loopback
from homeport.errors import HomeportError, Refused

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

RUNTIMES: Final = ("auto", "podman", "docker", "containerd", "process", "null")


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
    default="auto",
    show_default=True,
    help="What runs the apps; auto takes Podman, else Docker, else containerd.",
)
kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The Kubernetes cluster that helm charts go to; without it they run on Podman.",
)
poll_option = click.option(
    "--poll",
    type=click.FloatRange(min=0.1, max=86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How often a remote repository is asked when nobody says that it moved.",
)


otlp_option = click.option(
    "--otlp",
    "otlp_url",
    metavar="URL",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    help="Send traces to this collector (OTLP over HTTP).",
)
closed_option = click.option("--closed", is_flag=True, help="Ask for a token on this machine too.")


tls_option = click.option("--tls", is_flag=True, help="Serve https on loopback too; elsewhere it always is.")


def people_options(command: Decorated) -> Decorated:
    """How people's traffic is protected: --tls-cert, --tls-key and --closed."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in reversed(
        (
            click.option("--tls-cert", type=file, help="Your own certificate with its chain (PEM), for people."),
            click.option("--tls-key", type=file, help="The key that belongs to it (PEM)."),
            closed_option,
        )
    ):
        command = option(command)
    return command


def connection_options(command: Decorated) -> Decorated:
    """How many may be connected: --connections and --connections-per-address."""
    for option in reversed(
        (
            click.option(
                "--connections",
                type=click.IntRange(min=10),
                default=10_000,
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


def tls_files(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both or neither.")
    return None if certificate is None or key is None else (certificate.resolve(), key.resolve())


def scheme(http: Address, *, tls: bool, files: tuple[Path, Path] | None) -> str:
    return "https" if tls or files is not None or not is_loopback(http.host) else "http"


def require_token_for(http: Address, database: Path) -> None:
    """Refuses early what could only be refused later: where nothing was ever stored there is no token either."""
    if is_loopback(http.host) or database.exists():
        return
    # In a folder that is still empty, --data means central's database.
    place = f"--data {database.parent}" if database.name == "central.db" else f"--store {database}"
    raise Refused(
        f"Refusing to listen on {http.host} without access control.",
        hint=f"Create a token first:  homeport tokens create --role admin --name NAME {place}\n"
        f"  or keep it local:      --http 127.0.0.1:{http.port}",
    )


def require_addresses(*, guarded: Sequence[str] = (), **addresses: Address) -> None:
    """Each by its option's name: free, and on loopback unless access to it is controlled."""
    for option, address in addresses.items():
        if option not in guarded:
            require_loopback(address, f"--{option}")
    for option, address in addresses.items():
        require_free(address, f"--{option}")


def prepare_folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise HomeportError(
            f"Cannot use {data} for data: {error.strerror}.",
            hint="Give a folder that you may write to with --data DIR.",
        ) from error
    return data.resolve()
