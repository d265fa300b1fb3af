"""What a newcomer waits for: from a compose.yaml to a healthy container, beside the compose tool alone."""

import statistics
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from tests.bench.home import Numbers, await_site, compose_up
from tests.support.forks import COMMAND
from tests.support.images import build_images
from tests.support.podman import podman, remove_leftovers
from tests.support.processes import Machine, machine, start_up
from tests.support.registry import running_registry

COMPOSE = """
services:
  web:
    image: {image}
    environment: {{GREETING: "${{GREETING:-hello}}"}}
    healthcheck:
      test: ["CMD", "/bin/busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/healthz"]
      interval: 1s
      retries: 3
"""


def compose_to_healthy(repetitions: int = 7) -> Numbers:
    """Medians in seconds, in turns with `podman-compose up -d`, the image being there. A folder of its own for each:
    every deploy is the first of its app."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    first: list[float] = []
    again: list[float] = []
    composed: list[float] = []
    with tempfile.TemporaryDirectory() as folder, running_registry() as registry:
        image = build_images(registry.host)[0]
        podman("pull", "--tls-verify=false", image)
        try:
            with machine(Path(folder) / "host") as host:
                start_up(host, node=f"{prefix}-laptop")
                await_site(host)
                for number in range(repetitions):
                    shop = Path(folder) / f"{prefix}-shop-{number}"
                    shop.mkdir()
                    (shop / "compose.yaml").write_text(COMPOSE.format(image=image))
                    for taken in (first, again):
                        taken.append(_deploy(host, shop))
                    # As the tool's own, it is gone before the next: checks of its health would slow that down.
                    host.homeport("delete", shop.name)
                    composed.append(compose_up(shop / "compose.yaml", f"{prefix}-{number}"))
        finally:
            remove_leftovers(prefix)
            podman("rmi", "--force", image, check=False)
    return {
        "deploy": statistics.median(first),
        "deploy again": statistics.median(again),
        "podman-compose up -d": statistics.median(composed),
    }


def _deploy(host: Machine, folder: Path) -> float:
    """A process of its own, as a person starts it."""
    environment = {**host.clean_environment(), "HOMEPORT_URL": host.url}
    started = time.perf_counter()
    subprocess.run([str(COMMAND), "deploy", str(folder)], check=True, capture_output=True, env=environment)
    return time.perf_counter() - started
