"""The layout of a Git registry of apps."""

import pytest

from homeport.catalog.registry_tree import AppPlace, app_place, find_apps, read_app
from homeport.errors import InvalidInput
from tests.support.vectors import MARGO

CONTENT = (MARGO / "description.yaml").read_bytes()
PATHS = [
    "demo/hello/1.1.0/margo.yaml",
    "demo/hello/1.0.0/margo.yaml",
    "demo/hello/1.0.0/resources/icon.png",
    "tools/probe/2.0.0/margo.yaml",
    "README.md",
]


def test_apps_are_found_by_their_place() -> None:
    places, problems = find_apps(PATHS)
    assert [place.path for place in places] == sorted(path for path in PATHS if path.endswith("margo.yaml"))
    assert problems == ()


def test_filters_narrow_what_is_found() -> None:
    assert find_apps(PATHS, category="tools")[0] == (AppPlace("tools", "probe", "2.0.0"),)
    assert find_apps(PATHS, app_name="hello", version="1.0.0")[0] == (AppPlace("demo", "hello", "1.0.0"),)
    assert find_apps(PATHS, app_name="helo") == ((), ())


@pytest.mark.parametrize(
    "path", ["margo.yaml", "a/margo.yaml", "a/b/margo.yaml", "a/b/c/d/margo.yaml", ".git/a/b/margo.yaml"]
)
def test_a_description_in_the_wrong_place_is_reported(path: str) -> None:
    places, (problem,) = find_apps([path])
    assert places == ()
    assert problem.path == path
    assert "<category>/<app>/<version>/margo.yaml" in problem.message


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "a\0b", "-x"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        app_place("demo", name, "1.0.0")
    assert [problem.field for problem in caught.value.problems] == ["app_name"]


def test_the_folder_and_the_description_must_agree_on_the_version() -> None:
    assert read_app(CONTENT, app_place("ceramics", "kiln", "1.2.1")).app.category == "ceramics"
    with pytest.raises(InvalidInput) as caught:
        read_app(CONTENT, app_place("ceramics", "kiln", "1.3.0"))
    (problem,) = caught.value.problems
    assert str(problem) == (
        "ceramics/kiln/1.3.0/margo.yaml:7  metadata.version: "
        'is "1.2.1", but the folder is called "1.3.0"; the two must be the same.'
    )
