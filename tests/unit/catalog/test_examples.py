"""The example apps are valid, complete, and deployable as they are."""

from pathlib import Path

import pytest
import yaml

from homeport.catalog.packages import pack_app
from homeport.catalog.registry_tree import AppPlace, find_apps, read_app
from homeport.core.archive import check_archive
from homeport.core.parameters import check_values
from tests.support.images import EXAMPLE_REGISTRY, EXAMPLES, HELLO_VERSIONS, materialise

APPS = EXAMPLES / "apps"
PLACES, PROBLEMS = find_apps(path.relative_to(APPS).as_posix() for path in APPS.rglob("*.yaml"))


def test_the_examples_are_the_ones_the_demo_shows() -> None:
    assert not PROBLEMS
    assert [place.folder for place in PLACES] == ["demo/broken/1.0.0", "demo/hello/1.0.0", "demo/hello/1.1.0"]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place.folder))
def test_an_example_deploys_without_any_parameter_and_brings_its_components(place: AppPlace) -> None:
    app = read_app((APPS / place.path).read_bytes(), place).app
    for profile in app.profiles:
        assert check_values(app, profile, {})[1] == ()
        for component in profile.components:
            compose = APPS / place.folder / "components" / component.name / "compose.yaml"
            images = [service["image"] for service in yaml.safe_load(compose.read_text())["services"].values()]
            assert all(image.startswith(f"{EXAMPLE_REGISTRY}/demo/hello:") for image in images)
            assert {image.rpartition(":")[2] for image in images} <= set(HELLO_VERSIONS)


def test_an_example_can_be_pointed_at_another_registry(tmp_path: Path) -> None:
    copy = materialise(APPS, "127.0.0.1:9999", tmp_path / "apps")
    assert not [path for path in copy.rglob("*.yaml") if EXAMPLE_REGISTRY in path.read_text()]
    packages = pack_app(copy / "demo/hello/1.1.0", "oci://127.0.0.1:9999/demo/hello")
    assert [(package.what, package.repository, package.tag) for package in packages] == [
        ("web", "oci://127.0.0.1:9999/demo/hello/web", "1.1.0"),
        ("cache", "oci://127.0.0.1:9999/demo/hello/cache", "1.0.0"),
        ("app", "oci://127.0.0.1:9999/demo/hello", "1.1.0"),
    ]
    (entry,) = check_archive(packages[0].artifact.layers[0].content)
    assert b"127.0.0.1:9999/demo/hello:1.1.0" in entry.content
