"""The example apps are valid, complete, and deployable as they are."""

import io
import tarfile
from pathlib import Path

import pytest
import yaml

from homeport.catalog.packages import CHART_TYPE, pack_app
from homeport.catalog.registry_tree import AppPlace, find_apps, read_app
from homeport.core.archive import check_archive
from homeport.core.parameters import check_values
from homeport.errors import InvalidInput
from homeport.vocabulary import ProfileType
from tests.support.images import EXAMPLE_REGISTRY, EXAMPLES, HELLO_VERSIONS, materialise

APPS = EXAMPLES / "apps"
PLACES, PROBLEMS = find_apps(path.relative_to(APPS).as_posix() for path in APPS.rglob("*.yaml"))


def test_the_examples_are_the_ones_the_demo_shows() -> None:
    assert not PROBLEMS
    hello = [f"demo/hello/{version}" for version in HELLO_VERSIONS]
    assert [place.folder for place in PLACES] == ["demo/broken/1.0.0", "demo/greeter/1.0.0", *hello]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place.folder))
def test_an_example_deploys_without_any_parameter_and_brings_its_components(place: AppPlace) -> None:
    app = read_app((APPS / place.path).read_bytes(), place).app
    for profile in app.profiles:
        assert check_values(app, profile, {})[1] == ()
        for component in profile.components:
            images = images_of(APPS / place.folder / "components" / component.name, profile.type)
            assert all(image.startswith(f"{EXAMPLE_REGISTRY}/demo/hello:") for image in images)
            assert {image.rpartition(":")[2] for image in images} <= set(HELLO_VERSIONS)


def images_of(folder: Path, kind: ProfileType) -> list[str]:
    if kind is ProfileType.HELM:
        return [yaml.safe_load((folder / "values.yaml").read_text())["image"]]
    return [
        service["image"] for service in yaml.safe_load((folder / "compose.yaml").read_text())["services"].values()
    ]


def test_a_chart_is_packed_as_helm_would_push_it() -> None:
    chart, app = pack_app(APPS / "demo/greeter/1.0.0", f"oci://{EXAMPLE_REGISTRY}/packages/greeter")
    assert (chart.what, chart.repository, chart.tag) == ("greeter", f"oci://{EXAMPLE_REGISTRY}/demo/greeter", "1.0.0")
    assert app.what == "app"
    assert chart.artifact.config is not None
    assert chart.artifact.config.media_type == "application/vnd.cncf.helm.config.v1+json"
    assert [layer.media_type for layer in chart.artifact.layers] == [CHART_TYPE]
    with tarfile.open(fileobj=io.BytesIO(chart.artifact.layers[0].content)) as tar:
        assert {"greeter/Chart.yaml", "greeter/templates/deployment.yaml"} <= set(tar.getnames())


def test_a_chart_of_another_version_than_the_description_says_is_refused(tmp_path: Path) -> None:
    copy = materialise(APPS / "demo/greeter/1.0.0", EXAMPLE_REGISTRY, tmp_path / "greeter")
    chart = copy / "components/greeter/Chart.yaml"
    chart.write_text(chart.read_text().replace("version: 1.0.0", "version: 2.0.0", 1))
    with pytest.raises(InvalidInput, match=r"is 1\.0\.0, but components/greeter/Chart\.yaml says 2\.0\.0"):
        pack_app(copy, f"oci://{EXAMPLE_REGISTRY}/packages/greeter")


def test_an_app_is_not_pushed_over_its_own_component() -> None:
    with pytest.raises(InvalidInput, match=r"its component greeter would both be oci://.*/demo/greeter:1\.0\.0"):
        pack_app(APPS / "demo/greeter/1.0.0", f"oci://{EXAMPLE_REGISTRY}/demo/greeter")


def test_a_chart_of_an_older_form_is_not_published(tmp_path: Path) -> None:
    copy = materialise(APPS / "demo/greeter/1.0.0", EXAMPLE_REGISTRY, tmp_path / "greeter")
    chart = copy / "components/greeter/Chart.yaml"
    chart.write_text(chart.read_text().replace("apiVersion: v2", "apiVersion: v1", 1))
    with pytest.raises(InvalidInput, match=r"Chart\.yaml has apiVersion v1, and Margo devices take charts of v2"):
        pack_app(copy, f"oci://{EXAMPLE_REGISTRY}/packages/greeter")


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
