"""A commit of thousands of files, through `git fast-import`.

It writes one pack. As single objects, ten thousand files and their folders would be twenty thousand files on
disk, several seconds of creating them and as many of reading them again for the push.
"""

import pygit2

from homeport.adapters.git.changes import Nested, leaves
from homeport.adapters.git.commits import message_text
from homeport.vocabulary import Commit

BULK_FILES_MIN = 250
"""From this number on, starting a program costs less than writing the objects one by one."""

COMMAND = ("-c", "core.compression=1", "fast-import", "--quiet", "--done", "--force", "--depth=0")

_REFERENCE = "refs/homeport/import"
_NOWHERE = "0" * 40


def import_stream(*, base: Commit | None, changes: Nested, message: str, author: pygit2.Signature) -> bytes:
    """The input of fast-import. It prints the new commit's id; the temporary ref it needs is deleted at the end."""
    who, text = author, message_text(message).encode()
    parts = [
        f"commit {_REFERENCE}\nmark :1\n".encode(),
        f"committer {who.name} <{who.email}> {who.time} +0000\n".encode(),
        _data(text),
        f"from {base}\n".encode() if base else b"",
    ]
    for path, leaf in leaves(changes):
        quoted = '"' + path.replace('"', '\\"') + '"'
        if leaf.content is None:
            parts.append(f"D {quoted}\n".encode())
        else:
            parts += (f"M 100644 inline {quoted}\n".encode(), _data(leaf.content))
    parts.append(f"\nreset {_REFERENCE}\nfrom {_NOWHERE}\n\nget-mark :1\ndone\n".encode())
    return b"".join(parts)


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)
