"""An engine's words become a code and a sentence."""

import pytest

from homeport.adapters.runtime.failures import (
    create_failed,
    meaningful_line,
    port_in_use,
    program_missing,
    pull_failed,
    with_port_holder,
)
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
        (
            "Error: container create: no command or entrypoint provided, and no CMD or ENTRYPOINT from image",
            "web could not be started: the image has no command of its own, so one has to be given",
        ),
        (
            "Error response from daemon: No command specified",
            "web could not be started: the image has no command of its own, so one has to be given",
        ),
        ("", "web could not be started: it gave no reason"),
        ("something odd", "web could not be started: something odd"),
    ],
)
def test_what_a_tool_prints_becomes_one_sentence(output: str, sentence: str) -> None:
    failure = create_failed("web", meaningful_line(output))
    assert str(failure) == sentence
    assert failure.code is Code.CREATE_FAILED


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            'Error: runc: exec failed: unable to start container process: exec: "/nope": stat /nope: no such file or '
            "directory: OCI runtime attempted to invoke a command that was not found\n",
            'The container has no program "/nope".',
        ),
        (
            'OCI runtime exec failed: exec failed: unable to start container process: exec: "bash": executable file '
            "not found in $PATH: unknown\r\n",
            'The container has no program "bash".',
        ),
        ("sh: exec: /nope: no such file or directory\n", None),
        ("Error: the settings have no such file or directory\n", None),
        ("", None),
    ],
)
def test_a_command_without_its_program_is_one_sentence(output: str, sentence: str | None) -> None:
    assert program_missing(output) == sentence


def test_the_first_error_is_told_and_not_its_consequences() -> None:
    assert meaningful_line(PODMAN_IMAGE).startswith("initializing source docker://localhost/nothing:1")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            "initializing source docker://r/a:9: reading manifest 9 in r/a: manifest unknown: manifest unknown",
            "its registry has no such image or tag. Check the name, or push it first",
        ),
        (
            'pinging container registry r:5000: Get "https://r:5000/v2/": dial tcp 127.0.0.1:5000: connect: '
            "connection refused",
            "its registry does not answer at 127.0.0.1:5000. Start it, or correct the name",
        ),
        (
            'Get "https://registry.example/v2/": dial tcp: lookup registry.example on 10.0.0.1:53: no such host',
            "the host registry.example cannot be found",
        ),
        (
            "pull access denied for a, repository does not exist",
            "its registry refuses access without a login, or has no such image",
        ),
        ("it took longer than 600 s", "it took longer than 600 s"),
    ],
)
def test_a_pull_that_failed_names_the_cause_in_plain_words(reason: str, cause: str) -> None:
    assert str(pull_failed("web", "a:1", reason)) == f"The image a:1 could not be pulled: {cause}"


def test_a_full_disk_has_its_own_code() -> None:
    reason = "writing blob: storing blob to file: write /var/tmp/x: no space left on device"
    assert pull_failed("web", "a:1", reason).code is Code.DISK_FULL
    assert create_failed("web", reason).code is Code.DISK_FULL
    assert pull_failed("web", "a:1", "not found").code is Code.IMAGE_PULL_FAILED


def test_a_port_that_one_of_ours_has_says_whose_it_is() -> None:
    said = str(create_failed("web", PODMAN_PORT))
    assert port_in_use(said) == 18999
    assert with_port_holder(said, "shop@home").endswith("port 18999 is already in use on this machine by shop@home")
    assert with_port_holder(said, "") == said
    assert port_in_use("it ended") is None


def test_an_image_that_can_only_be_built_is_not_blamed_on_a_registry() -> None:
    reason = "pinging container registry localhost: dial tcp 127.0.0.1:80: connect: connection refused"
    assert str(pull_failed("web", "localhost/shop:1", reason)) == (
        "The image localhost/shop:1 could not be pulled: "
        "images called localhost/… are built on the machine itself, and this one is not there"
    )
