"""The documents: what a newcomer looks for is there, and no link leads nowhere."""

import re
from pathlib import Path

import pytest

from homeport.vocabulary import Code

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "clients/typescript/README.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As forges make them of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(page.read_text("utf-8"))
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_what_a_newcomer_looks_for_is_linked_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    links = set(LINK.findall(readme))
    assert {"LICENSE", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/roadmap.md"} <= links
    guides = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs" / "how-to").iterdir()}
    reference = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs" / "reference").iterdir()}
    assert guides | reference <= {link.partition("#")[0] for link in links}
    assert {"At home", "For an organisation"} <= set(re.findall(r"\*\*([^*]+)\*\*", readme))


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    listed = LINK.findall((folder / "README.md").read_text("utf-8"))
    assert sorted(listed) == sorted({*listed}), "each once"
    assert {page.name for page in folder.glob("[0-9]*.md")} <= set(listed)


def test_the_architecture_is_drawn_with_every_part() -> None:
    drawn = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("```mermaid")[2].partition("```")[0]
    for part in ("API layer", "Embedded libraries", "Provisioners", "Adapters"):
        assert f'["{part}' in drawn, part
    words = re.sub(r"<br/>|I/O|HTTP /api/v1", " ", drawn)
    folders = set(re.findall(r"(\w+)/", words))
    package = ROOT / "src" / "homeport"
    known = {path.name for path in package.rglob("*") if path.is_dir()}
    assert folders <= known, folders - known


def test_every_path_of_the_architecture_exists() -> None:
    """Those of a paragraph are below the folders that it is about; those of the walk are modules of the package."""
    package, missing = ROOT / "src" / "homeport", []
    for paragraph in re.split(r"\n(?=[-\d\n])", (ROOT / "ARCHITECTURE.md").read_text("utf-8")):
        heads = [
            package / name for name in re.findall(r"`([\w/]+)/`", paragraph.partition(" ")[2].partition("** ")[0])
        ]
        rooms = [ROOT, package, *(inner for head in heads for inner in (head, *head.glob("*/")))]
        for path in (each for text in re.findall(r"`([^`\s]+/[^`\s]*)`", paragraph) for each in alternatives(text)):
            if not path.startswith("/") and not any(
                (room / path).exists() or (room / f"{path}.py").exists() for room in rooms
            ):
                missing.append(path)
    assert not missing


def alternatives(path: str) -> list[str]:
    """`fleet/{central,site}` names two."""
    before, brace, rest = path.partition("{")
    among, _, after = rest.partition("}")
    return (
        [path] if not brace else [each for name in among.split(",") for each in alternatives(before + name + after)]
    )


def test_every_failure_code_is_explained() -> None:
    page = (ROOT / "docs/reference/failure-codes.md").read_text("utf-8")
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == [code.value for code in Code]
