"""Adds up an engine's progress while it pulls an image: lines of JSON, one layer each. Pure.

Docker reports bytes per layer; Podman reports little more than names. What is not reported counts as unknown (0).
"""

import json
from collections.abc import Iterator


class PullProgress:
    def __init__(self) -> None:
        self._pending = b""
        self._layers: dict[str, tuple[int, int]] = {}

    @property
    def bytes_done(self) -> int:
        return sum(done for done, _ in self._layers.values())

    @property
    def bytes_total(self) -> int:
        return sum(total for _, total in self._layers.values())

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Processes the next bytes of the response; yields each error that the engine reports in them."""
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            error = self._take(line)
            if error:
                yield error

    def _take(self, line: bytes) -> str | None:
        if not line.strip():
            return None
        message = json.loads(line)
        if message.get("error"):
            return str(message["error"])
        layer, detail = message.get("id"), message.get("progressDetail") or {}
        # Unpacking repeats the same bytes under the same id, from zero; only the download is counted.
        if layer and detail.get("total") and message.get("status") == "Downloading":
            self._layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif layer in self._layers and message.get("status") in ("Download complete", "Pull complete"):
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        return None
