"""Prints a compose project as podman-compose resolves it, as JSON. Run as a script:

    python -I resolve_project.py ARGUMENTS OF PODMAN-COMPOSE

`podman-compose config` would show services before `extends` is resolved, and not how many containers a service gets;
the same parser, used directly, gives both.
"""

import asyncio
import json
import sys
from typing import Any

import podman_compose  # type: ignore[import-untyped]  # it has no annotations

_interpolate = podman_compose.var_interpolate


def _interpolate_what_has_variables(value: str, *arguments: Any) -> Any:
    """podman-compose defines three classes for each text that it interpolates, which takes longer than all the
    rest."""
    return _interpolate(value, *arguments) if "$" in value else value


podman_compose.var_interpolate = _interpolate_what_has_variables


def main() -> None:
    tool = podman_compose.podman_compose
    # A dry run: otherwise it would ask podman for its version first, and nothing here needs podman.
    asyncio.run(tool.run(["--dry-run", *sys.argv[1:], "config", "--quiet"]))
    counts = tool.container_names_by_service
    project = {
        "services": {name: {**_own(it), "scale": len(counts[name])} for name, it in tool.services.items()},
        "volumes": tool.vols,
        "networks": tool.networks,
        "secrets": tool.declared_secrets,
    }
    sys.stdout.write(json.dumps(project, default=str))


def _own(service: dict[str, Any]) -> dict[str, Any]:
    """Without the tool's internal fields."""
    return {key: value for key, value in service.items() if not key.startswith("_")}


if __name__ == "__main__":
    main()
