"""An engine's words become a code and a sentence."""

import pytest

from homeport.adapters.runtime.failures import create_failed, meaningful_line, pull_failed
from homeport.vocabulary import Code

PODMAN_PORT = """\
failed to connect to syslog: Initialization
time="2026-01-01T00:00:00Z" level=error msg="Removing timer for container b718 healthcheck"
Error: unable to start container "b7184312b1d8": cannot listen on the TCP port: \
listen tcp4 :18999: bind: address already in use
"""
PODMAN_IMAGE = """\
Trying to pull localhost/nothing:1...
time="2026-01-01T00:00:00Z" level=warning msg="Failed, retrying in 1s ... (1/3)"
Error: initializing source docker://localhost/nothing:1: pinging container registry localhost: connection refused
Error: no container with name or ID "x_web_1" found: no such container
"""
DOCKER_PORT = """\
Creating network "x_default" with the default driver
Creating x_app_1 ...
Creating x_app_1 ... error

ERROR: for x_app_1  Cannot start service app: driver failed programming external connectivity on endpoint x_app_1 \
(abc): Error starting userland proxy: listen tcp4 127.0.0.1:8080: bind: address already in use
ERROR: Encountered errors while bringing up the project.
"""
PROGRAM = (
    'Error: unable to start container "7113a190c674": runc: runc create failed: unable to start container process: '
    'exec: "nosuch": executable file not found in $PATH: OCI runtime attempted to invoke a command that was not found'
)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (PODMAN_PORT, "web could not be started: port 18999 is already in use on this machine"),
        (DOCKER_PORT, "web could not be started: port 8080 is already in use on this machine"),
        (PROGRAM, 'web could not be started: the image has no program "nosuch"'),
        ("", "web could not be started: it gave no reason"),
        ("something odd", "web could not be started: something odd"),
    ],
)
def test_what_a_tool_prints_becomes_one_sentence(output: str, sentence: str) -> None:
    failure = create_failed("web", meaningful_line(output))
    assert str(failure) == sentence
    assert failure.code is Code.CREATE_FAILED


def test_the_first_error_is_told_and_not_its_consequences() -> None:
    assert meaningful_line(PODMAN_IMAGE).startswith("initializing source docker://localhost/nothing:1")


def test_a_full_disk_has_its_own_code() -> None:
    reason = "writing blob: storing blob to file: write /var/tmp/x: no space left on device"
    assert pull_failed("web", "a:1", reason).code is Code.DISK_FULL
    assert create_failed("web", reason).code is Code.DISK_FULL
    assert pull_failed("web", "a:1", "not found").code is Code.IMAGE_PULL_FAILED
