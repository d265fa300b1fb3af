"""The command line, run as a person runs it: its own process, real HTTP."""

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.integration.cli.canned import Canned, serving
from tests.support.forks import run_homeport

Homeport = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def canned() -> Iterator[Canned]:
    with serving(Canned()) as canned:
        yield canned


@pytest.fixture
def homeport(canned: Canned) -> Homeport:
    """`homeport(*arguments)` against the canned server; nothing of the caller's environment but the path."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_homeport(
            arguments, environment={"PATH": os.environ["PATH"], "HOMEPORT_URL": canned.url, **environment}
        )

    return run
