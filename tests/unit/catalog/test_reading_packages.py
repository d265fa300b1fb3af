"""What comes out of a registry is an app package or is refused by name, and nothing leads out of an app's folder."""

import pytest

from homeport.catalog.packages import (
    APP_TYPE,
    DESCRIPTION_TYPE,
    TITLE,
    package_files,
    read_package,
    split_reference,
    tag_of,
    version_of,
)
from homeport.core.model.artifact import Artifact, Layer
from homeport.errors import InvalidInput, TooLarge

DESCRIPTION = Layer(DESCRIPTION_TYPE, b"apiVersion: v1\n", {TITLE: "margo.yaml"})
ICON = "application/vnd.margo.app.icon.v1+png"


def package(*layers: Layer, kind: str = APP_TYPE) -> Artifact:
    return Artifact(kind, layers)


def test_the_files_of_a_package_have_the_names_of_their_layers() -> None:
    found = package_files(package(DESCRIPTION, Layer(ICON, b"x", {TITLE: "./resources/icon.png"})), "it")
    assert found == {"margo.yaml": b"apiVersion: v1\n", "resources/icon.png": b"x"}


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (package(DESCRIPTION, kind="application/vnd.example"), "not an app package"),
        (package(kind=""), "missing"),
        (package(), "0 descriptions"),
        (package(DESCRIPTION, DESCRIPTION), "2 descriptions"),
    ],
)
def test_what_is_no_package_is_refused(artifact: Artifact, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_package(artifact, "it")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a//b", "a/./b", "a\\b", "a\nb"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a file"):
        package_files(package(DESCRIPTION, Layer(ICON, b"", {TITLE: name})), "it")


@pytest.mark.parametrize("name", ["margo.yaml", "components/web/compose.yaml"])
def test_a_resource_replaces_no_other_file(name: str) -> None:
    with pytest.raises(InvalidInput, match="would replace"):
        package_files(package(DESCRIPTION, Layer(ICON, b"", {TITLE: name})), "it")


def test_sizes_are_bounded() -> None:
    with pytest.raises(TooLarge, match="description"):
        read_package(package(Layer(DESCRIPTION_TYPE, b"x" * (2 * 2**20))), "it")
    with pytest.raises(TooLarge, match="larger than 8 MiB"):
        package_files(package(DESCRIPTION, Layer(ICON, b"x" * (9 * 2**20), {TITLE: "icon.png"})), "it")


def test_a_reference_names_a_repository_and_one_of_its_versions_or_none() -> None:
    digest = "sha256:" + "0" * 64
    assert split_reference("oci://h:5000/a/b") == ("oci://h:5000/a/b", None)
    assert split_reference("oci://h:5000/a/b:1.0.0_x") == ("oci://h:5000/a/b", "1.0.0_x")
    assert split_reference(f"oci://h/a@{digest}") == ("oci://h/a", digest)
    for wrong in ("oci://h", "h/a", "oci://h/a@sha256:1", "oci://h/a:"):
        with pytest.raises(InvalidInput, match="not an OCI repository"):
            split_reference(wrong)


def test_a_tag_cannot_have_the_plus_of_a_version() -> None:
    assert (tag_of("1.0.0+b.5"), version_of("1.0.0_b.5")) == ("1.0.0_b.5", "1.0.0+b.5")
