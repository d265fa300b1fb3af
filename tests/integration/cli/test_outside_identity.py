"""A fleet whose identities an authority outside writes, driven by the commands that a person types."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.integration.cli.test_roles import role
from tests.support.forks import run_homeport
from tests.support.outside import CENTRAL, DOMAIN, WFM, ForeignAuthority, node_id, site_id
from tests.support.ports import free_port
from tests.support.waiting import wait_for


def person(home: Path) -> Callable[..., str]:
    """Types a command and reads what it answers; `code` is how it has to end, None if that does not matter."""

    def types(*words: str, code: int | None = 0) -> str:
        done = run_homeport(words, environment={"PATH": os.environ["PATH"], "HOME": str(home)})
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    return types


def test_a_fleet_certified_from_outside_is_let_in_and_managed_from_central(tmp_path: Path) -> None:
    types, authority = person(tmp_path / "home"), ForeignAuthority(tmp_path / "svids")
    http, grpc, site_http, site_grpc, node_http = (str(free_port()) for _ in range(5))
    url = f"https://127.0.0.1:{http}"
    central = (
        *("central", "--data", str(tmp_path / "central"), "--http", http, "--grpc", grpc, "--tls"),
        *("--svid-dir", str(authority.issue("central", CENTRAL)), "--trust-domain", DOMAIN, "--wfm", WFM),
    )
    site = (
        *("site", "--name", "north", "--central", url, "--data", str(tmp_path / "north"), "--http", site_http),
        *("--git", str(tmp_path / "central" / "deployments.git"), "--grpc", site_grpc),
        *("--svid-dir", str(authority.issue("north", site_id()))),
    )
    node = (
        *("node", "--site", f"127.0.0.1:{site_grpc}", "--data", str(tmp_path / "n1"), "--http", node_http),
        *("--runtime", "null", "--svid-dir", str(authority.issue("n1", node_id())), "--wfm", WFM),
    )
    made = types("tokens", "create", "--role", "admin", "--name", "ada", "--data", str(tmp_path / "central"))
    token = re.search(r"hp_\w+", made)
    assert token is not None, made
    with role(*central, log=tmp_path / "central.log") as first:
        assert first.stdout is not None
        pin = next(found[0] for line in first.stdout if (found := re.search(r"sha256:[0-9a-f]{64}", line)))
        types("login", url, "--pin", pin, "--token", token[0])
        with role(*site, log=tmp_path / "north.log"):
            wait_for(lambda: "north" in types("sites", "pending"))
            types("sites", "approve", "north")
            with role(*node, log=tmp_path / "n1.log"):
                # Until the site has joined, central knows no such place.
                wait_for(lambda: "n1" in types("nodes", "pending", "--site", "north", code=None))
                assert "n1" not in types("nodes", "list")
                assert "approved n1" in types("nodes", "approve", "n1", "--site", "north")
                wait_for(lambda: "live" in types("nodes", "list"))
                assert "n1" in types("identity", "list", "--site", "north")
                types("identity", "remove", "n1", "--site", "north")
                wait_for(lambda: "stale" in types("nodes", "list"))
