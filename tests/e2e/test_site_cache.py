"""Four nodes of one site, each on a host and with a Podman of its own, pull the same image from central's registry.
It crosses the line to the site once, although that line breaks in the middle; and the site gives it to them when
central is gone. So does a model. No node has a login, or trusts central's authority."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cached_site import IMAGE_BYTES, NODES, CachedSite, cached_site
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[CachedSite]:
    with cached_site(tmp_path) as running:
        yield running


def test_an_image_for_four_nodes_and_a_model_for_two_cross_the_line_once_and_are_there_without_central(
    fleet: CachedSite, tmp_path: Path
) -> None:
    central = fleet.central
    image_bytes = fleet.stored_bytes()
    fleet.wan.reserved, fleet.wan.cuts, fleet.wan.cut_after_bytes = 0, 0, IMAGE_BYTES // 2
    fleet.deploy()

    assert fleet.wan.cuts == 1
    assert fleet.wan.reserved <= 1.02 * image_bytes, "all that came over the line, the component and TLS included"
    for node in NODES:
        assert fleet.images(node) == {fleet.image}, "under its own name, and no other"
    seen = central.json("cache", "show", "north")
    assert seen["protected_bytes"] >= IMAGE_BYTES
    assert seen["stored_bytes"] <= seen["size_max_bytes"]

    model = write_tiny_model(tmp_path / "tiny.gguf")
    fleet.wan.reserved = 0
    try:
        central.homeport("models", "serve", str(model), "--site", "north", "--allow-cpu", "--replicas", "2")
        copies = [path for node in NODES for path in (tmp_path / f"data-{node}/models").glob("blobs/*/tiny.gguf")]
        assert len(copies) == 2
        assert fleet.wan.reserved <= 1.3 * model.stat().st_size, "the model of two nodes came over the line once"
        central.homeport("deployments", "delete", "tiny@north", "--wait")
    finally:
        for state in tmp_path.glob("data-*/engine-programs/process/*/*/state.json"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)

    fleet.hosts["central"].cut()
    podman = fleet.podmans["n4"]
    before = podman.ids()
    podman.run("rm", "--all", "--force", "--time", "0")
    podman.run("rmi", "--all", "--force")
    central.wait_for(lambda: podman.ids() - before, seconds=240)
    assert fleet.images("n4") == {fleet.image}
