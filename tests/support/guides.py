"""The commands that the documents tell people to type, as they stand there."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
ALTERNATIVE, OR = re.compile(r"(?<=\w)\|(?=\w)"), "\0"
SEPARATORS = frozenset(";&|()")


@dataclass(frozen=True, slots=True)
class Command:
    """One command line of a document."""

    page: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def guides() -> list[Path]:
    """README, the pages of docs/ that people follow, and what is said about single topics. Decisions are history."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if "adr" not in page.parts and page.name != "bugs-found.md"]


def commands(page: Path) -> Iterator[Command]:
    """What stands in blocks of shell, and after `$ ` in blocks that show a session."""
    text = page.read_text("utf-8")
    name = page.relative_to(ROOT).as_posix()
    for block in FENCE.finditer(text):
        indentation, language, content = block.groups()
        first = text.count("\n", 0, block.start(3)) + 1
        shown = content.lstrip().startswith("$ ")
        if language != "sh" and not shown and not content.lstrip().startswith("homeport "):
            continue
        continued = ""
        for offset, raw in enumerate(content.splitlines()):
            line = raw.removeprefix(indentation)
            if shown and not continued:
                if not line.startswith("$ "):
                    continue
                line = line.removeprefix("$ ")
            continued += line
            if continued.endswith("\\"):
                continued = continued[:-1]
                continue
            if continued.strip() and not continued.lstrip().startswith("#"):
                yield Command(name, first + offset, continued.strip())
            continued = ""


def spans(page: Path) -> Iterator[Command]:
    """What stands in the text itself, between backticks."""
    text = FENCE.sub(lambda block: "\n" * block.group(0).count("\n"), page.read_text("utf-8"))
    name = page.relative_to(ROOT).as_posix()
    for span in SPAN.finditer(text):
        words = " ".join(span.group(1).split())
        if words.startswith("homeport "):
            yield Command(name, text.count("\n", 0, span.start()) + 1, words)


def calls_of_homeport(command: Command) -> list[list[str]]:
    """The arguments of each `homeport` in a line, alternatives (`list|show`) one by one; an ellipsis says nothing."""
    text = ALTERNATIVE.sub(OR, re.sub(r"…|\.\.\.|[][]", " ", command.text))
    words = shlex.shlex(text, posix=True, punctuation_chars="".join(sorted(SEPARATORS)))
    words.whitespace_split = True
    words.commenters = "#"
    found: list[list[str]] = []
    current: list[str] | None = None
    is_first = True
    for word in words:
        if set(word) <= SEPARATORS:
            is_first, current = True, None
        elif current is not None:
            current.append(word)
        elif is_first and word == "homeport":
            current = []
            found.append(current)
        else:
            is_first = is_first and "=" in word
    return [list(each) for call in found for each in product(*(word.split(OR) for word in call))]
