"""Names of images as engines read them, and as repositories below another host."""

import pytest

from homeport.adapters.registry.image_mirror import ImageName, parse_image
from homeport.adapters.registry.reference import from_nested_name, nested_name

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", ImageName("docker.io", "library/nginx", "latest", "")),
        ("nginx:1.27", ImageName("docker.io", "library/nginx", "1.27", "")),
        ("grafana/grafana:11", ImageName("docker.io", "grafana/grafana", "11", "")),
        ("quay.io/team/app:v1", ImageName("quay.io", "team/app", "v1", "")),
        ("central:5000/apps/web:1.0", ImageName("central:5000", "apps/web", "1.0", "")),
        ("localhost/app:1", ImageName("localhost", "app", "1", "")),
        (f"quay.io/app@{DIGEST}", ImageName("quay.io", "app", "", DIGEST)),
        (f"quay.io/app:1@{DIGEST}", ImageName("quay.io", "app", "1", DIGEST)),
        ("quay.io/app@sha256:short", None),
        ("", None),
    ],
)
def test_an_image_is_named_with_the_defaults_of_engines(image: str, expected: ImageName | None) -> None:
    assert parse_image(image) == expected


@pytest.mark.parametrize("name", ["quay.io/team/app", "central:5000/apps/web", "10.0.0.1:5000/a/b/c"])
def test_a_repository_below_another_host_is_found_again(name: str) -> None:
    assert ":" not in nested_name(name)
    assert from_nested_name(nested_name(name)) == name
