"""Which images a compose file names, and what of an image is missing where another runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.images import (
    ImageChange,
    blobs_of,
    bytes_to_pull,
    compose_images,
    image_changes,
    interpolated,
    manifest_for,
)
from homeport.vocabulary import Digest

LAYER, OTHER = Digest("sha256:" + "1" * 64), Digest("sha256:" + "2" * 64)


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("web:1.0", {}, "web:1.0"),
        ("web:${TAG:-1.0}", {}, "web:1.0"),
        ("web:${TAG:-1.0}", {"TAG": "2.0"}, "web:2.0"),
        ("web:${TAG:-1.0}", {"TAG": ""}, "web:1.0"),
        ("web:${TAG-1.0}", {"TAG": ""}, "web:"),
        ("$HOST/web:$TAG", {"HOST": "a.example", "TAG": "2"}, "a.example/web:2"),
        ("we$$b", {}, "we$b"),
        ("web:${TAG}", {}, None),
        ("web:${TAG:?needed}", {"TAG": "1"}, None),
        ("web:${TAG:-${OTHER:-1}}", {}, None),
        ("web:${TAG:+x}", {"TAG": "1"}, None),
        ("web:${", {}, None),
        ("web:$1", {}, None),
    ],
)
def test_plain_variables_are_replaced_and_anything_else_is_unknown(
    text: str, values: dict[str, str], found: str | None
) -> None:
    assert interpolated(text, values) == found


def test_a_default_may_be_in_another_file() -> None:
    project = {"services": {"web": {"image": "web:${TAG:-1}"}}}
    assert compose_images(project, {}, has_defaults=False) is None
    assert compose_images(project, {"TAG": "2"}, has_defaults=False) == {"web": "web:2"}


@pytest.mark.parametrize(
    ("project", "found"),
    [
        ({"services": {"web": {"image": "web:1"}}}, {"web": "web:1"}),
        ({"services": {"web": {"image": "web:1"}, "debug": {"image": "d", "profiles": ["x"]}}}, {"web": "web:1"}),
        ({"services": {"web": {"image": "web:1", "build": "."}}}, {}),
        ({"services": {"web": {"extends": {"file": "other.yaml"}}}}, None),
        ({"services": {"web": {"image": "web:1"}}, "include": ["other.yaml"]}, None),
        ({"services": {"web": {"image": 7}}}, None),
        ({"services": {"web": {"image": "w" * 2_000}}}, None),
        ({"services": {str(number): {"image": "web"} for number in range(200)}}, None),
        ({"services": {"web": None}}, None),
        ({"services": []}, None),
        ([], None),
        (None, None),
    ],
)
def test_what_a_compose_file_names_is_told_where_it_is_certain(project: Any, found: dict[str, str] | None) -> None:
    assert compose_images(project, {}) == found


def test_a_layer_that_another_image_has_is_not_pulled_again() -> None:
    assert bytes_to_pull([{LAYER: 5}], [{LAYER: 5, OTHER: 7}, {OTHER: 7}]) == 7
    assert bytes_to_pull([], [{LAYER: 5}, {OTHER: 7}]) == 12
    assert bytes_to_pull([{LAYER: 5}], []) == 0


def test_the_changes_of_a_component_are_told_by_service() -> None:
    assert image_changes({"web": "w:1", "old": "o"}, {"web": "w:2", "new": "n"}) == (
        ImageChange("web", "w:1", "w:2"),
        ImageChange("new", None, "n"),
        ImageChange("old", "o", None),
    )


def test_the_image_of_the_machine_is_chosen_from_an_index() -> None:
    def entry(architecture: str, digest: str, system: str = "linux") -> dict[str, Any]:
        return {"digest": digest, "platform": {"os": system, "architecture": architecture}}

    index = {"manifests": ["x", entry("arm64", OTHER), entry("amd64", LAYER, "windows"), entry("amd64", LAYER)]}
    assert manifest_for(index, "amd64") == LAYER
    assert manifest_for(index, "riscv64") is None
    assert manifest_for({"manifests": [entry("amd64", "../../x")]}, "amd64") is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(LAYER),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["manifests", "layers", "config", "digest", "size", "platform", "services", "image"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_no_manifest_or_file_however_odd_is_more_than_unknown(document: Any) -> None:
    blobs = blobs_of(document)
    assert blobs is None or all(size >= 0 for size in blobs.values())
    manifest_for(document, "amd64")
    compose_images(document, {})
