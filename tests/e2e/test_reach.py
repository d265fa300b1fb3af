"""Looking into a container of `homeport up`: a command, a terminal, a forwarded port."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.support.processes import Machine, start_up
from tests.support.terminals import terminal

BUSYBOX = "/bin/busybox"
TALKS = "busybox=/bin/busybox; $busybox cat; echo bad >&2; exit 3"


def piped(host: Machine, *arguments: str, typed: bytes) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "homeport.cli", *arguments],
        input=typed,
        capture_output=True,
        env={**host.clean_environment(), "HOMEPORT_URL": host.url},
        timeout=60,
        check=False,
    )


def test_commands_a_terminal_and_ports_of_a_deployment_at_home(
    host: Machine, apps: Path, node_prefix: str, port: int
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "hello@1.0.0", "--site", "home", "--set", f"port={port}", "--wait")

    assert host.homeport("exec", "hello@home", "--", BUSYBOX, "echo", "ahoy") == "ahoy\n"
    # Standard output, standard error and the exit code stay apart, and the end of the input reaches the command.
    much = bytes(range(256)) * 4096
    done = piped(host, "exec", "hello@home", "-i", "--", BUSYBOX, "sh", "-c", TALKS, typed=much)
    assert (done.returncode, done.stdout == much, done.stderr) == (3, True, b"bad\n")
    missing = host.command("exec", "hello@home", "--", "/no/such/program")
    assert (missing.returncode, missing.stderr) == (127, 'The container has no program "/no/such/program".\n')
    unknown = host.command("exec", "hello@home", "--component", "nope", "--", BUSYBOX)
    assert (unknown.returncode, 'no component "nope"' in unknown.stderr) == (3, True), unknown.stderr
    elsewhere = host.command("exec", "hello@home", "--node", "nope", "--", BUSYBOX)
    assert (elsewhere.returncode, "does not run on node nope" in elsewhere.stderr) == (3, True), elsewhere.stderr

    with terminal(host, ["exec", "hello@home", "-it", "--", BUSYBOX, "sh"], columns=91, rows=31) as shell:
        shell.expect("# ")
        shell.type("/bin/busybox stty size\n")
        shell.expect("31 91")
        # What sleeps is in the foreground by the time it says so.
        shell.type("/bin/busybox sh -c 'echo sle\"\"eps; exec /bin/busybox sleep 1000'\n")
        shell.expect("sleeps")
        shell.type("\x03")  # Ctrl-C reaches the command, not ours.
        shell.expect("# ")
        shell.resize(columns=123, rows=45)
        shell.type("/bin/busybox sleep 1; /bin/busybox stty size\n")
        shell.expect("45 123")
        shell.type("exit 7\n")
        assert shell.wait() == 7

    with terminal(host, ["port-forward", "hello@home", "0:8080"]) as forwarding:
        shown = forwarding.expect("leads to port 8080")
        local = re.search(r"127\.0\.0\.1:(\d+)", shown)
        assert local is not None
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{local[1]}/", timeout=60) as answer:
                assert b"hello" in answer.read()
        forwarding.type("\x03")
        assert forwarding.wait() in {0, 130}

    entries = host.json("audit", "list", "--limit", "200")["entries"]
    begun = [each for each in entries if each["detail"].get("phase") == "begin"]
    assert {each["action"] for each in begun} == {"deployments.exec", "deployments.port-forward"}
    assert any(each["detail"].get("command") == f"{BUSYBOX} echo ahoy" for each in begun)
    assert len([each for each in entries if each["detail"].get("phase") == "end"]) == len(begun)
