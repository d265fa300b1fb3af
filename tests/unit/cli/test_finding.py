"""What is said where a name on the command line is that of no app."""

from pathlib import Path
from typing import Any, cast

import pytest

from homeport.cli.api.client import Client
from homeport.cli.api.finding import as_argument, find_app
from homeport.errors import Conflict, NotFound


class Catalog:
    """Answers as a server with one app does."""

    def pages(self, path: str, key: str, **query: Any) -> Any:
        app = {"id": "1", "category": "demo", "app_name": "hello", "version": "1.0.0"}
        is_asked = all(value in (None, app[name]) for name, value in query.items() if name in app)
        return {key: [app] if is_asked else []}


@pytest.mark.parametrize(
    ("reference", "sentence", "hint"),
    [
        ("helo", 'There is no app "helo". Did you mean "hello"?', "homeport apps list"),
        ("hello:1.0.0", 'There is no app "hello:1.0.0".', "hello@1.0.0"),
        ("hello@2.0.0", 'There is no version 2.0.0 of "hello".', "1.0.0"),
        ("shop", 'There is no app "shop".', "homeport deploy ./shop"),
        ("shop/web", 'There is no app "shop/web".', "homeport deploy ./shop/web"),
    ],
)
def test_an_unknown_app_is_answered_with_what_was_probably_meant(
    reference: str, sentence: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / "web").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound) as refused:
        find_app(cast("Client", Catalog()), reference)
    assert str(refused.value) == sentence
    assert hint in (refused.value.hint or "")


class TwoVersions:
    def pages(self, path: str, key: str, **query: Any) -> Any:
        versions = [query["version"]] if query.get("version") else ["1.0.0", "1.1.0"]
        return {key: [{"id": v, "category": "demo", "app_name": "hello", "version": v} for v in versions]}


def test_what_is_removed_is_named_with_its_version_where_there_are_several() -> None:
    client = cast("Client", TwoVersions())
    assert find_app(client, "hello")["version"] == "1.1.0"
    with pytest.raises(Conflict, match=r'"hello" has 2 versions: 1\.0\.0, 1\.1\.0\.') as refused:
        find_app(client, "hello", is_one=True)
    assert "demo/hello@1.0.0" in (refused.value.hint or "")
    assert find_app(client, "hello@1.0.0", is_one=True)["version"] == "1.0.0"


@pytest.mark.parametrize(
    ("path", "written"), [(".", "."), ("shop", "./shop"), ("/srv/shop", "/srv/shop"), ("../shop", "../shop")]
)
def test_a_path_is_written_so_that_it_is_no_name(path: str, written: str) -> None:
    assert as_argument(Path(path)) == written
