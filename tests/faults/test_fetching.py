"""F6: the connection breaks in the middle of a large image. Images are Podman's to fetch: 4.3.1 begins a torn layer
anew by itself, so a cut costs what it tore and not the update. Components are Homeport's own, and are taken up
where they broke (tests/conformance/registry/test_bad_line.py)."""

from tests.faults.conftest import BIG_BYTES
from tests.support.hosts import HostFleet


def test_an_image_whose_download_breaks_is_still_installed(fleet: HostFleet) -> None:
    fleet.podman.run("rmi", "--all", "--force", check=False)
    fleet.registry.carried, fleet.registry.cuts = 0, 0
    fleet.registry.cut_after_bytes = BIG_BYTES // 2
    key = fleet.deploy("big", app="big")
    fleet.settled(key, seconds=240)
    assert fleet.registry.cuts == 1
    assert fleet.registry.carried <= 1.1 * (BIG_BYTES + BIG_BYTES // 2), "what was torn, and the layer once more"
