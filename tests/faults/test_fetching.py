"""F6: the connection breaks in the middle of something large.

A component's archive is Homeport's own to fetch: it is taken up where it broke, and costs its size. Images are the
engine's: Podman 4.3.1 begins a torn layer anew by itself, so a cut costs what it tore and not the update.
"""

from tests.faults.conftest import BIG_BYTES, HEAVY_BYTES
from tests.support.hosts import HostFleet


def test_an_archive_whose_download_breaks_again_and_again_costs_its_size(fleet: HostFleet) -> None:
    fleet.settled(fleet.deploy("witness"))  # brings the image, so that only the archive is counted
    fleet.registry.reserved, fleet.registry.cuts = 0, 0
    fleet.registry.cut_after_bytes, fleet.registry.cut_every_bytes = HEAVY_BYTES // 10, HEAVY_BYTES // 5
    key = fleet.deploy("heavy", app="heavy")
    fleet.settled(key, seconds=240)
    assert fleet.registry.cuts >= 4
    assert fleet.registry.reserved <= 1.1 * HEAVY_BYTES


def test_an_image_whose_download_breaks_is_still_installed(fleet: HostFleet) -> None:
    fleet.podman.run("rmi", "--all", "--force", check=False)
    fleet.registry.reserved, fleet.registry.cuts = 0, 0
    fleet.registry.cut_after_bytes = BIG_BYTES // 2
    key = fleet.deploy("big", app="big")
    fleet.settled(key, seconds=240)
    assert fleet.registry.cuts == 1
    assert fleet.registry.reserved <= 1.1 * (BIG_BYTES + BIG_BYTES // 2), "what was torn, and the layer once more"
