"""The options about what a node gives to its workloads, as one value."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from homeport.core.node.telemetry_variables import otlp_variables
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    kubeconfig: Path | None
    otlp: str | None
    otlp_grpc: str | None

    @property
    def settings(self) -> dict[str, Any]:
        """For NodeSettings."""
        return {
            "kubeconfig": self.kubeconfig.resolve() if self.kubeconfig else None,
            "workload_variables": otlp_variables(self.otlp, self.otlp_grpc),
        }


def workload_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --kubeconfig, --workload-otlp and --workload-otlp-grpc, which the command receives as `workload`."""
    options = (
        click.option(
            "--kubeconfig",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The Kubernetes cluster that helm charts go to; without it they run on Podman.",
        ),
        click.option(
            "--workload-otlp",
            metavar="URL",
            help="The OpenTelemetry collector for workloads (OTLP over HTTP), as containers reach it.",
        ),
        click.option(
            "--workload-otlp-grpc", metavar="URL", help="The same collector over gRPC, in addition to the other."
        ),
    )

    @wraps(command)
    def gathered(
        *, kubeconfig: Path | None, workload_otlp: str | None, workload_otlp_grpc: str | None, **others: Any
    ) -> None:
        command(workload=WorkloadOptions(kubeconfig, workload_otlp, workload_otlp_grpc), **others)

    decorated: Callable[..., None] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
