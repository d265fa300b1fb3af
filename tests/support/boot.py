"""A role as systemd starts it at boot, on machines without systemd."""

import os
import shlex
import subprocess

from tests.support.processes import Machine, Process


def start_at_boot(host: Machine, unit: str, name: str) -> Process:
    """The unit's command, in no environment but the unit's own, until it is up. Its other lines are for systemd
    alone, and `systemd-analyze verify` accepts them (integration/cli/test_service.py)."""
    lines = [line.partition("=") for line in unit.replace("%%", "%").splitlines()]
    (command,) = [shlex.split(value.replace("$$", "$")) for key, _, value in lines if key == "ExecStart"]
    variables = [shlex.split(value)[0].partition("=") for key, _, value in lines if key == "Environment"]
    # Where the tested source is not the installed one.
    source = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    log = host.folder / f"{name}-at-boot-{len(host.running)}.log"
    with log.open("wb") as out:
        popen = subprocess.Popen(
            [*host.prefix, *command],
            env={**source, **{key: value for key, _, value in variables}},
            cwd="/",
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    process = Process(name, popen, log, host.url, host.folder / "state" / "homeport")
    host.running.append(process)
    process.wait_up()
    return process
