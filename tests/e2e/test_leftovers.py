"""Tests end what they start, also those that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.images import ROOT, podman_environment
from tests.support.podman import containers, podman, remove_abandoned
from tests.support.registry import RunningRegistry

KILLED = """
import os, signal, sys
from tests.support.podman import new_node_prefix, podman
for kind in ("gone", "here"):
    node = f"{new_node_prefix('leftover-' + kind)}-1"
    podman("run", "--tls-verify=false", "--detach", "--label", f"homeport.node={node}", sys.argv[1])
    print(node, flush=True)
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def test_what_a_killed_run_of_tests_leaves_is_removed_by_the_next_and_that_of_others_stays(
    registry: RunningRegistry, tmp_path: Path
) -> None:
    environment = {**podman_environment(), "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, f"{registry.host}/demo/hello:1.0.0"]
    killed = subprocess.run(
        [*command, "kill"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    left = killed.stdout.split()
    assert (killed.returncode, len(left)) == (-signal.SIGKILL, 2), killed.stderr
    assert all(containers(node=node) for node in left)
    others: list[str] = []
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as living:
        try:
            assert living.stdout is not None
            others += [living.stdout.readline().strip() for _ in range(2)]
            assert not any(containers(node=node) for node in left)
            (notes,) = tmp_path.glob("homeport-test-nodes-*")
            remove_abandoned(notes)
            assert all(containers(node=node) for node in others)
            living.communicate(timeout=60)
            assert not list(notes.iterdir()), "a run that ends takes its note along"
        finally:
            living.kill()
            for each in (each for node in (*left, *others) for each in containers(node=node)):
                podman("rm", "--force", "--time", "0", str(each["Id"]), check=False)
