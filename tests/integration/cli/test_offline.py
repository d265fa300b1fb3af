"""Checking and publishing apps works without a server."""

import asyncio
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.catalog.packages import ARCHIVE_TYPE, COMPONENT_TYPE, pack_app
from homeport.core.model.artifact import Artifact, Layer
from tests.integration.cli.conftest import Homeport
from tests.support.images import EXAMPLES, materialise
from tests.support.registry import running_registry

NOWHERE = {"HOMEPORT_URL": "http://127.0.0.1:9"}
APPS = EXAMPLES / "apps"


def test_a_whole_registry_is_validated(homeport: Homeport) -> None:
    done = homeport("apps", "validate", str(APPS), **NOWHERE)
    assert done.returncode == 0, done.stderr
    assert "✓ demo/hello/1.0.0 is valid" in done.stdout.splitlines()


@pytest.mark.parametrize("path", ["demo/hello/1.0.0", "demo/hello/1.0.0/margo.yaml"])
def test_a_version_is_validated_by_its_folder_or_its_file(homeport: Homeport, path: str) -> None:
    assert homeport("apps", "validate", str(APPS / path), **NOWHERE).returncode == 0


def test_every_problem_is_named_with_file_and_line(homeport: Homeport, tmp_path: Path) -> None:
    shutil.copytree(APPS, tmp_path / "apps")
    broken = tmp_path / "apps" / "demo" / "hello" / "1.0.0" / "margo.yaml"
    text = broken.read_text().replace("components: [web]", "components: [wbe]", 1)
    broken.write_text(text)
    line = 1 + next(number for number, each in enumerate(text.splitlines()) if "[wbe]" in each)
    done = homeport("apps", "validate", str(tmp_path / "apps"), **NOWHERE)
    assert done.returncode == 1
    assert f"✗ demo/hello/1.0.0/margo.yaml:{line}  parameters.port.targets[0].components[0]" in done.stderr
    assert "1 problem; nothing was changed." in done.stderr


def test_a_place_without_apps_is_not_found(homeport: Homeport, tmp_path: Path) -> None:
    assert homeport("apps", "validate", str(tmp_path)).returncode == 3
    assert homeport("apps", "validate", str(tmp_path / "none")).returncode == 3


def test_an_app_and_its_components_are_pushed_to_a_real_registry(homeport: Homeport, tmp_path: Path) -> None:
    with running_registry() as registry:
        apps = materialise(APPS, registry.host, tmp_path / "apps")
        folder = apps / "demo" / "hello" / "1.1.0"
        done = homeport("apps", "push", str(folder), registry.repository("apps/hello"), "-o", "json", **NOWHERE)
        assert done.returncode == 0, done.stderr
        pushed = json.loads(done.stdout)["pushed"]
    assert [each["what"] for each in pushed] == ["web", "cache", "app"]
    assert pushed[-1]["reference"] == f"oci://{registry.host}/apps/hello:1.1.0"
    assert all(each["digest"].startswith("sha256:") for each in pushed)


def test_what_was_pushed_is_pulled_as_the_same_folder(homeport: Homeport, tmp_path: Path) -> None:
    with running_registry() as registry:
        apps = materialise(APPS, registry.host, tmp_path / "apps")
        repository = registry.repository("demo/hello")
        for version in ("1.0.0", "1.1.0"):
            done = homeport("apps", "push", str(apps / "demo" / "hello" / version), repository, **NOWHERE)
            assert done.returncode == 0, done.stderr
        assert homeport("apps", "versions", repository, **NOWHERE).stdout.split() == ["1.1.0", "1.0.0"]
        pulled = homeport("apps", "pull", repository, "--to", str(tmp_path / "pulled"), **NOWHERE)
        assert pulled.returncode == 0, pulled.stderr
        one = homeport("apps", "pull", f"{repository}:1.0.0", "--to", str(tmp_path / "pulled"), **NOWHERE)
        assert one.returncode == 0, one.stderr
        again = homeport("apps", "pull", f"{repository}:1.0.0", "--to", str(tmp_path / "pulled"), **NOWHERE)
        assert again.returncode != 0 and "already exists" in again.stderr
        missing = homeport("apps", "pull", f"{repository}:9.0.0", "--to", str(tmp_path / "pulled"), **NOWHERE)
        assert missing.returncode == 3 and "9.0.0" in missing.stderr
    for version in ("1.0.0", "1.1.0"):
        before, after = apps / "demo" / "hello" / version, tmp_path / "pulled" / "demo" / "hello" / version
        assert contents(before) == contents(after)
    assert homeport("apps", "validate", str(tmp_path / "pulled"), **NOWHERE).returncode == 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_component_whose_archive_leaves_its_folder_is_not_pulled(homeport: Homeport, tmp_path: Path) -> None:
    with running_registry() as registry:
        apps = materialise(APPS, registry.host, tmp_path / "apps")
        folder = apps / "demo" / "hello" / "1.0.0"
        *_, app = pack_app(folder, registry.repository("demo/hello"))
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name in ("web/compose.yaml", "web/../../outside"):
                archive.addfile(tarfile.TarInfo(name))
        layer = Layer(ARCHIVE_TYPE, buffer.getvalue(), {"org.margo.component.type": "compose"})
        bad = Artifact(COMPONENT_TYPE, (layer,))

        async def push() -> None:
            await OciRegistry().push(registry.repository("demo/hello/web"), "1.0.0", bad)
            await OciRegistry().push(app.repository, app.tag, app.artifact)

        # Not anyio.run: an async fixture of the session may be alive, and counts as a loop that runs.
        asyncio.run(push())
        done = homeport("apps", "pull", f"{app.repository}:1.0.0", "--to", str(tmp_path / "pulled"), **NOWHERE)
    assert done.returncode == 1 and "leaves its directory" in done.stderr
    assert not (tmp_path / "pulled").exists() and not (tmp_path / "outside").exists()


def test_a_registry_that_is_away_is_said_so(homeport: Homeport, tmp_path: Path) -> None:
    apps = materialise(APPS, "127.0.0.1:9", tmp_path / "apps")
    done = homeport("apps", "push", str(apps / "demo/hello/1.0.0"), "oci://127.0.0.1:9/apps/hello", **NOWHERE)
    assert done.returncode == 4
    assert done.stderr.startswith("✗ ")


def test_what_is_no_oci_repository_is_refused(homeport: Homeport) -> None:
    done = homeport("apps", "push", str(APPS / "demo/hello/1.0.0"), "127.0.0.1:5005/hello", **NOWHERE)
    assert done.returncode == 1
    assert "oci://HOST" in done.stderr


def test_a_pipeline_with_a_cycle_is_refused_by_the_name_of_its_file(homeport: Homeport, tmp_path: Path) -> None:
    """Before a server is asked, whether it is only checked or to be run."""
    file = tmp_path / "nightly.yaml"
    step = "needs: [{}]\n    job: {{image: x, command: [echo]}}\n"
    file.write_text(f"name: nightly\nsteps:\n  a:\n    {step.format('b')}  b:\n    {step.format('a')}")
    for verb in ("validate", "run"):
        done = homeport("pipelines", verb, str(file), **NOWHERE)
        assert done.returncode == 1 and "is a cycle: a needs b needs a" in done.stderr
        assert f"{file.name}:4  steps.a.needs" in done.stderr
