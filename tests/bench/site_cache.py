"""What an image for four nodes of a site costs on the line to the site."""

import tempfile
from pathlib import Path

from tests.support.cached_site import cached_site

Numbers = dict[str, float]


def four_nodes() -> Numbers:
    """Bytes over the line as a multiple of the image's, while that line breaks once in the middle."""
    with tempfile.TemporaryDirectory() as folder, cached_site(Path(folder)) as fleet:
        image_bytes = fleet.stored_bytes()
        fleet.wan.reserved, fleet.wan.cut_after_bytes = 0, image_bytes // 2
        fleet.deploy()
        return {"ratio": fleet.wan.reserved / image_bytes, "MB": fleet.wan.reserved / 1e6}
