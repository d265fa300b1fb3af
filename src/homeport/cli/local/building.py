"""Builds the images of a compose file with the container engine of this machine, and pushes them to a registry."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.adapters.runtime.programs.find import find_program
from homeport.cli.local.places import ComponentRegistry
from homeport.content.importing.description import app_name
from homeport.content.importing.folders import ImportSourceOptions, read_project
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import EngineUnavailable, InvalidInput

BUILD_SECONDS_MAX: Final = 3600.0
PUSH_SECONDS_MAX: Final = 1800.0


def build_images(
    path: Path,
    name: str | None,
    values: Mapping[str, str],
    place: ComponentRegistry,
    *,
    push: bool,
) -> dict[str, str]:
    """The image of each built service, by digest, so that the same build is the same app."""
    project = read_project(path, ImportSourceOptions(name, values))
    folder = path.parent.resolve()
    app = app_name(name or str(project.files[0].content.get("name") or ""), folder.name)
    images: dict[str, str] = {}
    for service, given in (project.resolved.get("services") or {}).items():
        if "build" in given:
            images[str(service)] = _build(folder, f"{app}-{service}", given["build"], place, push=push)
    return images


def _build(
    folder: Path,
    name: str,
    build: Any,
    place: ComponentRegistry,
    *,
    push: bool,
) -> str:
    engine = _engine()
    target = place.repository(f"images/{app_name(name)}")
    with tempfile.TemporaryDirectory() as scratch:
        noted = Path(scratch) / "image"
        _run([engine, "build", "--iidfile", str(noted), *_arguments(folder, build)], BUILD_SECONDS_MAX, "build")
        image = noted.read_text().strip()
        tag = f"{target}:build-{image.removeprefix('sha256:')[:12]}"
        if not push:
            return tag
        _run([engine, "tag", image, tag], PUSH_SECONDS_MAX, "tag")
        return f"{target}@{_push(engine, tag, place, Path(scratch))}"


def _arguments(folder: Path, build: Any) -> Iterator[str]:
    given: Mapping[str, Any] = build if isinstance(build, Mapping) else {"context": build}
    context = folder / str(given.get("context") or ".")
    if not context.is_dir():
        raise InvalidInput(f"There is no folder {context} to build from.")
    if file := given.get("dockerfile"):
        yield from ("--file", str(context / str(file)))
    if target := given.get("target"):
        yield from ("--target", str(target))
    arguments = given.get("args") or {}
    pairs: Sequence[str] = (
        [f"{key}={value}" for key, value in arguments.items()] if isinstance(arguments, Mapping) else list(arguments)
    )
    for pair in pairs:
        yield from ("--build-arg", str(pair))
    yield str(context)


def _push(engine: str, tag: str, place: ComponentRegistry, scratch: Path) -> str:
    """The digest in the registry. Credentials are passed through a file that only its owner can read."""
    environment: dict[str, str] = {}
    authority = place.authority()
    if place.login is not None:
        auth = scratch / "config.json"
        auth.write_text(json.dumps({"auths": {place.host: {"auth": place.login.basic.removeprefix("Basic ")}}}))
        auth.chmod(0o600)
        environment = {"REGISTRY_AUTH_FILE": str(auth), "DOCKER_CONFIG": str(scratch)}
    if Path(engine).name == "podman":
        noted = scratch / "digest"
        reach = ["--tls-verify=false"] if is_loopback(host_of(place.host)) else []
        if authority:
            (scratch / "ca.crt").write_text(authority)
            reach = ["--cert-dir", str(scratch)]
        _run([engine, "push", *reach, "--digestfile", str(noted), tag], PUSH_SECONDS_MAX, "push", environment)
        return noted.read_text().strip()
    if authority:
        raise InvalidInput(
            f"Docker does not trust the certificate of {place.host}.",
            hint="Build with podman, or give Docker what  homeport identity ca  prints, as "
            f"/etc/docker/certs.d/{place.host}/ca.crt .",
        )
    said = _run([engine, "push", tag], PUSH_SECONDS_MAX, "push", environment)
    found = [word for word in said.split() if word.startswith("sha256:")]
    if not found:
        raise EngineUnavailable(f"{engine} push did not report the digest of {tag}.")
    return found[-1]


def _engine() -> str:
    ours = engine_environment(os.environ)
    for name in ("podman", "docker"):
        found = find_program(name, ours)
        if found is not None:
            return str(found)
    raise EngineUnavailable("Neither podman nor docker was found to build with.", hint="Install one of them here.")


def _run(command: Sequence[str], seconds: float, verb: str, environment: Mapping[str, str] | None = None) -> str:
    """Raises InvalidInput with the last line of the engine's output."""
    ours = {**engine_environment(os.environ), **(environment or {})}
    try:
        done = subprocess.run(
            list(command), env=ours, capture_output=True, text=True, timeout=seconds, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(f"{Path(command[0]).name} {verb} took longer than {seconds:.0f} s.") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise InvalidInput(f"{Path(command[0]).name} {verb} failed: {lines[-1] if lines else 'it gave no reason'}")
    return done.stdout
