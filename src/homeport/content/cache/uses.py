"""Who needs which content: one small file for each user, beside the blobs.

    users/SHA256    JSON: the user's name, and repository and digest of each content it asked for

Users come and go with releases; a file is removed once its user is not alive any more.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from homeport.adapters.files.disk import disk_problems
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

CONTENTS_MAX: Final = 1_000
"""Of one user; a component has a handful of images."""
USER_LENGTH_MAX: Final = 200
FORGET_SECONDS: Final = 86_400.0
"""How long a user that is not alive is remembered: it may ask for content just before it counts as alive."""


@dataclass(frozen=True, slots=True)
class Used:
    repository: str
    """As in `Repositories`; empty for a file that is in none."""
    digest: Digest


@dataclass(frozen=True, slots=True)
class Users:
    """These functions block; the cache calls them in threads."""

    root: Path

    def note(self, user: str, used: Used) -> None:
        path = self._path(user)
        known = _read(path)
        found = [] if known is None else known[1]
        if used in found or len(found) >= CONTENTS_MAX:
            return
        content = {"user": user, "contents": [[each.repository, each.digest] for each in (*found, used)]}
        with disk_problems(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            draft = self.root / f".{secrets.token_hex(8)}"
            try:
                draft.write_text(json.dumps(content))
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise

    def of(self, live: Collection[str]) -> set[Used]:
        """What the live users need."""
        return {used for user, contents in self._all() if user in live for used in contents}

    def forget_others(self, live: Collection[str]) -> int:
        count, before = 0, time.time() - FORGET_SECONDS
        for user, _ in list(self._all()):
            path = self._path(user)
            with suppress(FileNotFoundError):
                if user not in live and path.stat().st_mtime < before:
                    path.unlink()
                    count += 1
        return count

    def _all(self) -> Iterator[tuple[str, list[Used]]]:
        for path in self.root.glob("[!.]*"):
            found = _read(path)
            if found is not None:
                yield found

    def _path(self, user: str) -> Path:
        return self.root / hashlib.sha256(user.encode()).hexdigest()


def _read(path: Path) -> tuple[str, list[Used]] | None:
    """None where there is none; a damaged file counts as none, and is written again."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(path.read_bytes())
        return str(content["user"]), [Used(str(name), Digest(str(digest))) for name, digest in content["contents"]]
    return None
