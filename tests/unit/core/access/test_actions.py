"""The table of actions: how a request finds its row, and which rows cannot stand in it."""

import pytest

from homeport.core.access.actions import Action, ActionTable, Audit, Level, Scope


def read(name: str = "things.read", scope: Scope = Scope.NONE) -> Action:
    return Action(name, Level.VIEWER, scope, Audit.NONE)


def test_a_path_finds_the_row_of_its_template_with_its_names() -> None:
    table = ActionTable([{("GET", "/api/v1/sites/{site}/nodes/{name}"): read("nodes.read", Scope.SITE)}])
    found = table.find("GET", "/api/v1/sites/home/nodes/a")
    assert found is not None
    assert (found.action.name, found.params, found.site) == ("nodes.read", {"site": "home", "name": "a"}, "home")


@pytest.mark.parametrize(
    "path", ["/api/v1/things/", "/api/v1", "/api/v1//", "/api/v1/things/a/b", "//api/v1/things", "", "api/v1/things"]
)
def test_what_is_not_exactly_in_the_table_is_not_found(path: str) -> None:
    table = ActionTable([{("GET", "/api/v1/things"): read(), ("GET", "/api/v1/things/{thing}"): read()}])
    assert table.find("GET", path) is None


def test_another_method_is_not_found_and_the_known_ones_are_named() -> None:
    table = ActionTable([{("GET", "/things/{thing}"): read(), ("PUT", "/things/{thing}"): read()}])
    assert table.find("DELETE", "/things/a") is None
    assert table.methods("/things/a") == ["GET", "PUT"]
    assert table.methods("/others") == []


def test_head_is_answered_as_get() -> None:
    assert ActionTable([{("GET", "/things"): read()}]).find("HEAD", "/things") is not None


def test_a_literal_counts_before_a_variable_and_gives_way_where_it_leads_nowhere() -> None:
    table = ActionTable(
        [{("GET", "/t/self"): read("self"), ("GET", "/t/{id}"): read("one"), ("GET", "/t/{id}/more"): read("more")}]
    )
    names = {
        path: found.action.name for path in ("/t/self", "/t/a", "/t/self/more") if (found := table.find("GET", path))
    }
    assert names == {"/t/self": "self", "/t/a": "one", "/t/self/more": "more"}


def test_a_row_for_all_that_follows_takes_what_no_other_row_takes() -> None:
    table = ActionTable([{("GET", "/ui/{path:path}"): read("ui"), ("GET", "/ui/login"): read("login")}])
    found = table.find("GET", "/ui/assets/app.js")
    assert found is not None
    assert (found.action.name, found.params) == ("ui", {"path": "assets/app.js"})
    login = table.find("GET", "/ui/login")
    assert login is not None
    assert login.action.name == "login"
    assert table.find("GET", "/ui") is None


@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        ("/v2/a/manifests/1.0", "manifests", {"name": "a", "reference": "1.0"}),
        ("/v2/a/b/c/manifests/1.0", "manifests", {"name": "a/b/c", "reference": "1.0"}),
        ("/v2/manifests/manifests/manifests/x", "manifests", {"name": "manifests/manifests", "reference": "x"}),
        ("/v2/a/b/tags/list", "tags", {"name": "a/b"}),
        ("/v2/a/blobs/uploads/", "uploads", {"name": "a"}),
    ],
)
def test_a_part_of_any_length_ends_where_what_is_behind_it_begins(
    path: str, name: str, params: dict[str, str]
) -> None:
    table = ActionTable(
        [
            {
                ("GET", "/v2/{name:path}/manifests/{reference}"): read("manifests"),
                ("GET", "/v2/{name:path}/tags/list"): read("tags"),
                ("GET", "/v2/{name:path}/blobs/uploads/"): read("uploads"),
            }
        ]
    )
    found = table.find("GET", path)
    assert found is not None
    assert (found.action.name, found.params) == (name, params)
    for other in ("/v2/manifests/1.0", "/v2//tags", "/v2/a/manifests/", "/v2/a/tags/lists", "/v2/a/blobs/uploads"):
        assert table.find("GET", other) is None


def test_at_a_site_an_action_without_a_site_in_its_path_is_about_that_site() -> None:
    found = ActionTable([{("GET", "/plan"): read("plan.read", Scope.SITE)}], here="home").find("GET", "/plan")
    assert found is not None
    assert found.site == "home"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{("GET", "/a"): read()}, {("GET", "/a"): read()}], "twice"),
        ([{("GET", "/plan"): read(scope=Scope.SITE)}], "does not name it"),
        ([{("GET", "/sites/{site}"): read(scope=Scope.SEEN)}], "does not look at it"),
        ([{("get", "/a"): read()}], "not a method and a path"),
        ([{("GET", "/a/{rest:path}/b/{more:path}"): read()}], "two parts of any length"),
    ],
)
def test_rows_that_cannot_hold_are_refused_when_the_table_is_made(
    rows: list[dict[tuple[str, str], Action]], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ActionTable(rows)
