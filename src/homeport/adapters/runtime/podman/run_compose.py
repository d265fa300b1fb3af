"""podman-compose, as Homeport runs it: a script of its own, in a process of its own.

    python -I run_compose.py resolve ARGUMENTS                       prints the project as it resolves it, as JSON
    python -I run_compose.py run [--version V] [--new] ARGUMENTS     runs a command of it
    python -I run_compose.py --wait                                  imports it, then waits for one of the others

`podman-compose config` would show services before `extends` is resolved, and not how many containers a service gets;
the same parser, used directly, gives both. Importing it takes longer than most of its work, so a process may do that
while its caller is busy with something else (`programs/prestarted.py`, ADR 0106).
"""

import asyncio
import json
import os
import select
import subprocess
import sys
from typing import Any

import podman_compose  # type: ignore[import-untyped]  # it has no annotations

IDLE_SECONDS = 20.0
NOT_CALLED = 75
"""The exit code of a process that waited without getting work."""

_interpolate = podman_compose.var_interpolate


def _interpolate_what_has_variables(value: str, *arguments: Any) -> Any:
    """podman-compose defines three classes for each text that it interpolates, which takes longer than all the
    rest."""
    return _interpolate(value, *arguments) if "$" in value else value


podman_compose.var_interpolate = _interpolate_what_has_variables


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--wait"]:
        arguments = _awaited()
    verb, *rest = arguments
    if verb == "resolve":
        _resolve(rest)
    else:
        _run(rest)


def _awaited() -> list[str]:
    """The arguments, after this process has become what its caller asks for."""
    if not select.select([0], [], [], IDLE_SECONDS)[0]:
        sys.exit(NOT_CALLED)
    content = sys.stdin.buffer.read()
    if not content:
        sys.exit(NOT_CALLED)
    order = json.loads(content)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    return list(order["arguments"])


def _resolve(arguments: list[str]) -> None:
    tool = podman_compose.podman_compose
    # A dry run: otherwise it would ask podman for its version first, and nothing here needs podman.
    asyncio.run(tool.run(["--dry-run", *arguments, "config", "--quiet"]))
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


def _run(arguments: list[str]) -> None:
    version = ""
    if arguments[0] == "--version":
        version, arguments = arguments[1], arguments[2:]
    new_project = ""
    if arguments[0] == "--new":
        arguments = arguments[1:]
        podman_compose.Podman.existing_containers = _none_exist
        new_project = arguments[arguments.index("--project-name") + 1]
    podman_compose.Podman.output = _with_fewer_calls(podman_compose.Podman.output, version, new_project)
    try:
        asyncio.run(podman_compose.podman_compose.run(arguments))
    except podman_compose.PodmanComposeError as error:
        sys.exit(f"Error: {error}")


async def _none_exist(_podman: Any, _project: str) -> dict[str, Any]:
    return {}


def _with_fewer_calls(output: Any, version: str, new_project: str) -> Any:
    """Each call starts podman, which takes as long as creating a network. What is known already is not asked; and the
    networks of a new project are created without asking whether they exist."""
    networks: set[str] = set()

    async def answer(podman: Any, podman_args: list[str], cmd: str = "", cmd_args: list[str] | None = None) -> Any:
        words = cmd_args or []
        if podman_args == ["--version"] and version:
            return f"podman version {version}".encode()
        is_about_network = cmd == "network" and words[:1] in (["exists"], ["create"])
        if not is_about_network:
            return await output(podman, podman_args, cmd, cmd_args)
        verb, network = words[0], words[-1]
        if network in networks:
            return b""
        is_own = bool(new_project) and network.startswith(f"{new_project}_")
        if is_own and verb == "exists":
            raise subprocess.CalledProcessError(1, "podman network exists")
        try:
            found = await output(podman, podman_args, cmd, cmd_args)
        except subprocess.CalledProcessError as error:
            # It was left behind by an earlier attempt.
            if not is_own or b"already exists" not in (error.output or b""):
                raise
            found = b""
        networks.add(network)
        return found

    return answer


if __name__ == "__main__":
    main()
