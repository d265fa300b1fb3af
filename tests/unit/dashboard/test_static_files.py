"""What the browser is told about the page that it shows."""

from pathlib import Path

from homeport.dashboard.routes import PAGES
from homeport.dashboard.static_files import NOT_BUILT, content_policy


def test_only_scripts_of_the_document_may_run() -> None:
    policy = content_policy('<script type="module" src="/x.js"></script><script>start()</script>')
    assert "default-src 'none'" in policy
    # echo -n 'start()' | openssl dgst -sha256 -binary | base64
    assert "script-src 'self' 'sha256-DIm7WJS6ZKDYe5qFLPy+h4JFI9Bol5QmYC57mt3Fb00='" in policy
    assert "unsafe-inline" not in policy


def test_every_page_of_the_source_is_served() -> None:
    """The service worker shows these, and no others, while central does not answer."""
    routes = Path(__file__).parents[3] / "web" / "src" / "routes"
    assert sorted(PAGES) == sorted(each.name for each in routes.iterdir() if each.is_dir())


def test_a_page_that_is_not_built_says_how_to_build_it() -> None:
    assert b"make install" in NOT_BUILT
