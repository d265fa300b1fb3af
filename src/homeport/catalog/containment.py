"""Contains parse errors: whatever goes wrong while a document is read becomes a problem of that document alone.

Everything that parses bytes from Git or from users goes through `contained`. An unexpected exception (our bug) is
logged with what is needed to reproduce it (path, digest, traceback) and reported like any other problem: the
document is refused, the others are read. Number and length of problems are bounded, because reports carry them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from hashlib import sha256
from typing import Concatenate, Final, ParamSpec, TypeVar

from homeport.errors import InvalidInput, PermanentError, Problem
from homeport.log import get_log

PROBLEMS_MAX: Final = 20
TEXT_MAX: Final = 500

P = ParamSpec("P")
T = TypeVar("T")

log = get_log("homeport.catalog")


def contained(read: Callable[Concatenate[bytes, str, P], T]) -> Callable[Concatenate[bytes, str, P], T]:
    """Wraps `read(content, path, …)`: it raises only PermanentError, with a bounded number of problems."""

    @wraps(read)
    def read_contained(content: bytes, path: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(content, path, *args, **kwargs)
        except InvalidInput as error:
            raise InvalidInput(problems=_bounded(error.problems, path), hint=error.hint) from error
        except PermanentError:
            raise
        except Exception as error:
            digest = sha256(content).hexdigest()
            log.exception("document could not be read", path=path, sha256=digest, bytes=len(content))
            message = f"cannot be read because of a fault in Homeport ({type(error).__name__}); please report it."
            raise InvalidInput(problems=[Problem("", message, path)]) from error

    return read_contained


def _bounded(problems: tuple[Problem, ...], path: str) -> list[Problem]:
    shown = [
        replace(problem, field=_cut(problem.field), message=_cut(problem.message))
        for problem in problems[:PROBLEMS_MAX]
    ]
    more = len(problems) - len(shown)
    return [*shown, Problem("", f"has {more} more problems.", path)] if more > 0 else shown


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
