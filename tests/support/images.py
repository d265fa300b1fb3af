"""The example apps, ready for a registry on any port: images built and pushed, descriptions pointed at it.

Used by the tests and by the demo (`scripts/build-images`).
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CONTAINERS_CONF = ROOT / "scripts" / "containers.conf"
EXAMPLE_REGISTRY = "127.0.0.1:5005"
"""The registry that the files in examples/ name."""

HELLO_VERSIONS = ("1.0.0", "1.1.0")
COMMAND_SECONDS_MAX = 120


def podman_environment() -> dict[str, str]:
    """The environment for running podman in tests and in the demo. A person's own CONTAINERS_CONF wins."""
    return {"CONTAINERS_CONF": str(CONTAINERS_CONF), **os.environ}


def missing_programs() -> list[str]:
    """What has to be installed before images can be built; empty when all is there."""
    missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
    return missing if Path("/bin/busybox").exists() else [*missing, "busybox-static"]


def build_images(registry_host: str) -> list[str]:
    """Builds `demo/hello` in each version and pushes it; keeps no copy, so that a deployment really pulls."""
    images = []
    with tempfile.TemporaryDirectory(prefix="homeport-image-") as folder:
        shutil.copytree(EXAMPLES / "images" / "hello", folder, dirs_exist_ok=True)
        shutil.copy("/bin/busybox", Path(folder) / "busybox")
        for version in HELLO_VERSIONS:
            image = f"{registry_host}/demo/hello:{version}"
            _podman("build", "--layers=false", "--force-rm", "--build-arg", f"VERSION={version}", "-t", image, folder)
            try:
                _podman("push", "--tls-verify=false", image)
            finally:
                _podman("rmi", "--force", image)
            images.append(image)
    return images


def materialise(examples: Path, registry_host: str, target: Path) -> Path:
    """A copy of an apps folder in which every mention of the example registry is the given one; returns `target`."""
    shutil.copytree(examples, target, dirs_exist_ok=True)
    for path in target.rglob("*.yaml"):
        text = path.read_text("utf-8")
        path.write_text(text.replace(EXAMPLE_REGISTRY, registry_host), "utf-8")
    return target


def _podman(*arguments: str) -> None:
    done = subprocess.run(
        ["podman", *arguments],
        env=podman_environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"podman {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
