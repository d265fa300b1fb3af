"""What `pip install homeport` gives: the built wheel in an empty environment, without the repository."""

import json
import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120

COMPOSE = """
services:
  web:
    image: docker.io/library/nginx:1.27
    ports: ["${PORT:-18080}:80"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
        timeout=SECONDS_MAX,
    )
    (built,) = folder.glob("homeport-*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.startswith("homeport-")}
    tracked = subprocess.run(
        ["git", "ls-files", "src/homeport"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    static = ROOT / "src/homeport/dashboard/static"
    built = {path.relative_to(ROOT / "src").as_posix() for path in static.rglob("*") if path.is_file()}
    assert "homeport/dashboard/static/index.html" in built, "the dashboard is built before the wheel"
    assert inside == {name.removeprefix("src/") for name in tracked} | built | {"homeport/build.json"}
    with zipfile.ZipFile(wheel) as archive:
        noted = json.loads(archive.read("homeport/build.json"))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert noted["commit"] == head.stdout.strip()


def test_the_installed_wheel_deploys_a_compose_file(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "-q", "--no-deps", wheel],
        check=True,
        timeout=SECONDS_MAX,
    )
    # What it depends on comes from the tests' own environment; installing that again takes a minute.
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    environment = {"HOME": str(tmp_path), "PATH": f"{home / 'bin'}:{os.defpath}", "LANG": "C.UTF-8"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [home / "bin" / "homeport", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    assert run("version").startswith("homeport")
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    url, registry = f"http://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    environment["HOMEPORT_URL"] = url
    path = tmp_path / "up.log"
    arguments = ("up", "--runtime", "null", "--http", url.removeprefix("http://"), "--registry", registry)
    with path.open("w") as log:
        popen = subprocess.Popen(
            [home / "bin" / "homeport", *arguments], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    up = Process("up", popen, path, url, tmp_path)
    try:
        up.wait_up()
        assert "INSTALLED" in run("deploy", "./compose.yaml")
        assert "unchanged" in run("deploy", "./compose.yaml")
    finally:
        up.stop()
