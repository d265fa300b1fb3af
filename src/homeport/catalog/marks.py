"""Retry and restart requests of an operator, written into the deployment's file.

A mark makes another revision of the same content, so it is sent, stored and identified like any other change. The
file's other lines stay unchanged, also in a hand-written file.
"""

import re
from typing import Literal

from homeport.catalog.deployment import asks_the_same, parse_deployment
from homeport.catalog.documents import Quoted, dump, load
from homeport.catalog.extension import OURS
from homeport.errors import InvalidInput
from homeport.vocabulary import SiteName

Mark = Literal["retry", "restart"]


def mark_text(unique: str, author: str) -> str:
    """The text of a mark: who requested it, and a unique part."""
    return f"{unique[:8]} by {re.sub(r'[^A-Za-z0-9@._ -]', '-', author)[:100]}"


def with_mark(content: bytes, path: str, site: SiteName, mark: Mark, text: str) -> bytes:
    """The file with the mark, replacing an older one. Raises InvalidInput for an invalid file."""
    before = parse_deployment(content, path, site)
    plain = re.sub(rb'(?m)^ +%s: "[^"\n]*"\n' % mark.encode(), b"", content)
    for found in re.finditer(rb"(?m)^ +" + OURS.encode() + rb":[ ]*\n( +)", plain):
        line = b'%s%s: "%s"\n' % (found[1], mark.encode(), text.encode())
        candidate = plain[: found.start(1)] + line + plain[found.start(1) :]
        try:
            after = parse_deployment(candidate, path, site)
        except InvalidInput:
            continue  # the section of a component
        said = after.retry if mark == "retry" else after.restart
        if said == text and (mark == "restart" or asks_the_same(before, after)):
            return candidate
    document = load(content, path).data
    document["spec"][OURS] = {**(document["spec"].get(OURS) or {}), mark: Quoted(text)}
    return dump(document)
