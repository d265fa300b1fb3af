"""A terminal and a forwarded port through two NATs: the site is behind one from central, the node behind another from
its site. Connections are opened upwards only; central has no route to either."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.hosts import host_fleet, stocked
from tests.support.namespaces import natted
from tests.support.terminals import terminal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root")

EXAMPLES = Path(__file__).parents[2] / "examples" / "apps"
BUSYBOX = "/bin/busybox"


def test_a_terminal_and_a_port_through_two_nats_and_what_a_cut_says(tmp_path: Path) -> None:
    stock = stocked((EXAMPLES,), tmp_path / "stock")
    with host_fleet(tmp_path, stock, network=natted, node_options=("--allow", "exec")) as fleet:
        central, hosts = fleet.machines["central"], fleet.hosts
        ping = [*hosts["central"].prefix, "ping", "-c", "1", "-W", "1", hosts["north"].address]
        assert subprocess.run(ping, capture_output=True, check=False).returncode != 0, "central reaches no site"
        central.homeport("deploy", "hello@1.0.0", "--site", "north", "--set", "port=18080", "--wait")

        with terminal(central, ["exec", "hello@north", "-it", "--", BUSYBOX, "sh"], columns=91, rows=31) as shell:
            shell.expect("# ")
            shell.type("/bin/busybox stty size\n")
            shell.expect("31 91")
            shell.type("exit 7\n")
            assert shell.wait() == 7

        absent = central.command("exec", "hello@north", "--", "/nope")
        assert (absent.returncode, absent.stderr) == (127, 'The container has no program "/nope".\n')
        with terminal(central, ["port-forward", "hello@north", "0:8080"]) as forwarding:
            shown = forwarding.expect("leads to port 8080")
            found = re.search(r"127\.0\.0\.1:(\d+)", shown)
            assert found is not None
            fetch = [*hosts["central"].prefix, BUSYBOX, "wget", "-q", "-O", "-", f"http://127.0.0.1:{found[1]}/"]
            fetched = subprocess.run(fetch, capture_output=True, text=True, timeout=60, check=True)
            assert "hello" in fetched.stdout

        with terminal(central, ["exec", "hello@north", "-it", "--", BUSYBOX, "sh"]) as shell:
            shell.expect("# ")
            fleet.roles["north"].kill()
            shell.expect("The tunnel to site north was lost")
            assert shell.wait() == 4
        refused = central.command("exec", "hello@north", "--", BUSYBOX)
        assert (refused.returncode, "has no tunnel to central" in refused.stderr) == (1, True), refused.stderr
        fleet.again("north")
        central.wait_for(lambda: central.command("exec", "hello@north", "--", BUSYBOX, "true").returncode == 0)
