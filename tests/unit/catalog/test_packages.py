"""Packing an app's folder."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from homeport.adapters.registry.oci import render_manifest
from homeport.catalog.packages import pack_app, package_files, push_app
from homeport.errors import InvalidInput, NotFound
from tests.support.fake_registry import FakeRegistry
from tests.support.images import EXAMPLES
from tests.support.vectors import MARGO

BASE = "oci://127.0.0.1:5005/demo/hello"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "apps/demo/hello/1.1.0", tmp_path / "hello"))


def edit(folder: Path, before: str, after: str) -> None:
    text = (folder / "margo.yaml").read_text()
    assert before in text
    (folder / "margo.yaml").write_text(text.replace(before, after))


def test_the_packages_are_what_margo_describes(folder: Path) -> None:
    *components, app = pack_app(folder, BASE)
    schemas = {
        name: json.loads((MARGO / f"{name}.schema.json").read_text())
        for name in ("app-package-manifest", "compose-component-manifest")
    }
    Draft202012Validator(schemas["app-package-manifest"]).validate(json.loads(render_manifest(app.artifact)))
    for component in components:
        manifest = json.loads(render_manifest(component.artifact))
        Draft202012Validator(schemas["compose-component-manifest"]).validate(manifest)
        (layer,) = component.artifact.layers
        assert layer.annotations["org.margo.component.version"] == component.tag
    described = yaml.safe_load((folder / "margo.yaml").read_bytes())
    wanted = [each["properties"]["revision"] for each in described["deploymentProfiles"][0]["components"]]
    assert [each.tag for each in components] == wanted and app.tag == described["metadata"]["version"]
    files = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}
    titles = [layer.annotations["org.opencontainers.image.title"] for layer in app.artifact.layers]
    assert sorted(titles) == sorted(each for each in files if not each.startswith("components/"))
    assert all("org.margo.app.resource" in layer.annotations for layer in app.artifact.layers[1:])
    assert app.artifact.layers[0].content == (folder / "margo.yaml").read_bytes()
    assert app.artifact.layers[1].annotations["org.opencontainers.image.title"] == "resources/description.md"


def test_each_resource_is_a_layer_of_its_kind_and_format(folder: Path) -> None:
    resources = {
        "icon": ("./resources/logo.JPG", "jpeg"),
        "descriptionFile": ("./resources/description.md", "markdown"),
        "licenseFile": ("resources/LICENSE.pdf", "pdf"),
        "releaseNotes": ("./notes.txt", "plain"),
    }
    for name, _ in resources.values():
        (folder / name).write_bytes(name.encode())
    lines = "\n      ".join(f"{kind}: {name}" for kind, (name, _) in resources.items())
    edit(folder, "descriptionFile: ./resources/description.md", lines)
    app = pack_app(folder, BASE)[-1]
    packed = {
        (layer.media_type, layer.annotations["org.opencontainers.image.title"], layer.content)
        for layer in app.artifact.layers[1:]
        if layer.annotations["org.margo.app.resource"] in layer.media_type
    }
    assert packed == {
        (f"application/vnd.margo.app.{kind}.v1+{format_}", name.removeprefix("./"), name.encode())
        for kind, (name, format_) in resources.items()
    }
    assert package_files(app.artifact, "it").keys() == {"margo.yaml", *(name for _, name, _ in packed)}


def test_packing_twice_gives_the_same(folder: Path) -> None:
    assert pack_app(folder, BASE) == pack_app(folder, BASE)


@pytest.mark.anyio
async def test_what_was_pushed_is_told_with_its_digest(folder: Path) -> None:
    registry = FakeRegistry()
    pushed = await push_app(folder, BASE, registry)
    assert [each.what for each in pushed] == ["web", "cache", "app"]
    for each in pushed:
        assert await registry.pull(each.repository, each.tag) == await registry.pull(each.repository, each.digest)


def test_a_component_without_a_folder_is_somebody_elses(folder: Path) -> None:
    shutil.rmtree(folder / "components/cache")
    edit(folder, "oci://127.0.0.1:5005/demo/hello/cache", "oci://elsewhere.test/cache")
    assert [package.what for package in pack_app(folder, BASE)] == ["web", "app"]


def test_a_component_that_nodes_would_look_for_elsewhere_is_refused(folder: Path) -> None:
    edit(folder, "oci://127.0.0.1:5005/demo/hello/cache", "oci://elsewhere.test/cache")
    with pytest.raises(InvalidInput, match="nodes would not find what is pushed") as caught:
        pack_app(folder, BASE)
    assert caught.value.problems[0].field == "deploymentProfiles[0].components[1].properties.repository"


@pytest.mark.parametrize(
    ("name", "message"),
    [("../../outside", "leads out of the app's folder"), ("./resources/none.md", "there is no file")],
)
def test_a_resource_must_be_a_file_of_the_app(folder: Path, name: str, message: str) -> None:
    edit(folder, "./resources/description.md", name)
    with pytest.raises(InvalidInput, match=message):
        pack_app(folder, BASE)


def test_a_link_among_the_files_is_refused(folder: Path) -> None:
    (folder / "components/web/passwd").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput, match="components/web/passwd is a link"):
        pack_app(folder, BASE)


MISSING, PUBLISHED, FINE = "is not a file of the component", "would be published", ""
# fmt: off
FILES = [
    ("services: {web: {env_file: web.env}}",                                    MISSING),
    ("services: {web: {env_file: [{path: ../web.env}]}}",                       MISSING),
    ("configs: {site: {file: /etc/site.conf}}",                                 MISSING),
    ("secrets: {key: {file: ./inside.txt}}",                                    PUBLISHED),
    ("services: {web: {volumes: ['./inside.txt:/x']}}",                         PUBLISHED),
    ("services: {web: {volumes: [{type: bind, source: ., target: /x}]}}",       PUBLISHED),
    ("services: {web: {env_file: ./inside.txt, volumes: ['d:/x', './d:/y']}}",  FINE),
    ("services: {web: {env_file: [{path: no.env, required: false}, '$FILE']}}", FINE),
    ("secrets: {key: {file: ./outside.txt}}",                                   FINE),
    ("services: [1]",                                                           FINE),
]
# fmt: on


@pytest.mark.parametrize(("compose", "message"), FILES)
def test_a_component_brings_the_files_it_needs_and_none_of_the_machine(
    folder: Path, compose: str, message: str
) -> None:
    (folder / "components/web/compose.yaml").write_text(compose)
    (folder / "components/web/inside.txt").write_text("x")
    if not message:
        web = next(each for each in pack_app(folder, BASE) if each.what == "web")
        with tarfile.open(fileobj=io.BytesIO(web.artifact.layers[0].content)) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()} - {""}
        assert names == {"compose.yaml", "inside.txt"}
        return
    with pytest.raises(InvalidInput, match=message):
        pack_app(folder, BASE)


def test_a_component_must_have_a_compose_yaml(folder: Path) -> None:
    (folder / "components/web/compose.yaml").rename(folder / "components/web/docker-compose.yml")
    with pytest.raises(InvalidInput, match=r"web has no compose\.yaml"):
        pack_app(folder, BASE)


def test_a_folder_without_a_description_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"has no margo\.yaml"):
        pack_app(tmp_path, BASE)


@pytest.mark.parametrize(
    "repository", ["127.0.0.1:5005/demo", "oci://127.0.0.1:5005", "oci://127.0.0.1:5005/", "oci://h/UP"]
)
def test_nothing_is_packed_for_a_repository_that_is_none(folder: Path, repository: str) -> None:
    with pytest.raises(InvalidInput, match="is not an OCI repository"):
        pack_app(folder, repository)
