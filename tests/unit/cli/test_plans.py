"""What a plan says of images, line by line."""

from typing import Any

import pytest

from homeport.cli.terminal.plans import plan_lines

REGISTRY = "registry.example:5000/team"
OLD, NEW = f"a/b@sha256:{'1' * 64}", f"a/b@sha256:{'2' * 64}"
HELLO = f"{REGISTRY}/hello:1.0.0", f"{REGISTRY}/hello:1.1.0"


def lines(images: Any, pull_bytes: int | None) -> list[str]:
    component = {
        "component": "web",
        "action": "replace",
        "why": "revision 1.0.0 → 1.1.0",
        "images": images,
        "pull_bytes": pull_bytes,
    }
    item = {
        "site": "home",
        "name": "hello",
        "action": "update",
        "version_before": "1.0.0",
        "version_after": "1.1.0",
        "revision_before": None,
        "waits": None,
        "nodes": [{"node_id": "n-1", "components": [component]}],
        "refused": [],
        "parameters": [],
    }
    plan = {"changes": True, "deployments": [item], "restarts": 1, "deletions": 0}
    return [line.split("web")[-1].strip() if "replace" in line else line.strip() for line in plan_lines(plan)]


def image(before: str | None, after: str | None) -> dict[str, Any]:
    return {"service": "web", "before": before, "after": after}


@pytest.mark.parametrize(
    ("before", "after", "pull_bytes", "said"),
    [
        (*HELLO, 1_400_000, "hello:1.0.0 → hello:1.1.0, pull up to 1.4 MB"),
        (*HELLO, None, "hello:1.0.0 → hello:1.1.0, pull unknown size"),
        (*HELLO, 0, "hello:1.0.0 → hello:1.1.0, pull nothing"),
        ("redis", "docker.io/valkey:8", 5, "redis → docker.io/valkey:8, pull up to 5 B"),
        (None, f"{REGISTRY}/hello", 5, "hello (new), pull up to 5 B"),
        (f"{REGISTRY}/hello", None, 0, "hello (no longer), pull nothing"),
        (OLD, NEW, 7, "b@sha256:111111111111 → b@sha256:222222222222, pull up to 7 B"),
    ],
)
def test_an_image_that_changes_is_named_with_what_is_pulled(
    before: str | None, after: str | None, pull_bytes: int | None, said: str
) -> None:
    assert f"image     {said}" in lines([image(before, after)], pull_bytes)


@pytest.mark.parametrize("images", [None, [], [image("hello:1", "hello:1")]])
def test_nothing_is_said_of_images_that_stay_or_are_unknown(images: Any) -> None:
    assert not any("image" in line for line in lines(images, 0))


def test_the_size_of_several_images_is_said_once() -> None:
    said = lines([image("a:1", "a:2"), image(None, "b:1")], 10)
    images = [line for line in said if line.startswith("image")]
    assert images == ["image     a:1 → a:2", "image     b:1 (new), pull up to 10 B"]
