"""The contracts of `.importlinter` hold for the package (`make check`), and would not if somebody crossed a layer."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "homeport"


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """Every module of the package, empty."""
    for file in PACKAGE.rglob("*.py"):
        copy = tmp_path / "homeport" / file.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def linted(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_an_import_that_crosses_a_layer_is_found(skeleton: Path) -> None:
    assert linted(skeleton).returncode == 0
    for importer, imported in (
        ("core/clock.py", "homeport.adapters.store"),  # upwards
        ("site/crossing.py", "homeport.central.app"),  # a role another role
        ("fleet/site/crossing.py", "homeport.adapters.store"),  # a use-case an adapter
        ("fleet/central/crossing.py", "homeport.fleet.site"),  # central's use-cases a site's
    ):
        file = skeleton / "homeport" / importer
        file.write_text(f"import {imported}\n")
        done = linted(skeleton)
        assert done.returncode == 1, importer
        assert imported in done.stdout and "BROKEN" in done.stdout
        file.unlink()
