"""What helm's word on a release comes to, and what a release is called in a cluster."""

import json

from homeport.adapters.runtime.helm.cluster import read_status, release_in_cluster
from homeport.vocabulary import DeploymentId, NodeId

DIGEST = "sha256:" + "0" * 64


def test_a_deployed_release_runs_from_the_digest_in_its_description() -> None:
    info = {"status": "deployed", "description": DIGEST, "last_deployed": "2026-01-01T00:00:00Z"}
    seen = read_status("web", "web-1", json.dumps({"name": "web-1", "info": info}))
    assert (seen.component, seen.digest, seen.is_running) == ("web", DIGEST, True)


def test_a_failed_or_pending_release_does_not_run() -> None:
    for status in ("failed", "pending-install", "pending-upgrade", "uninstalling"):
        info = {"status": status, "description": 'Release "web-1" failed: timed out'}
        seen = read_status("web", "web-1", json.dumps({"info": info}))
        assert (seen.digest, seen.is_running) == (None, False)


def test_deployments_and_nodes_do_not_share_a_release() -> None:
    names = {
        release_in_cluster(DeploymentId(deployment), "web", NodeId(node)) for deployment in "ab" for node in "ab"
    }
    assert len(names) == 4
    assert all(name.startswith("web-") for name in names)
    assert len(release_in_cluster(DeploymentId("a"), "w" * 60, NodeId("n"))) <= 53
