"""Writes a response of many lines to a file or to the terminal, as it arrives."""

import os
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import click

from homeport.cli.terminal.output import done
from homeport.errors import Refused


def export_lines(lines: Iterable[bytes], out: Path | None, what: str) -> None:
    """Without a file, or with `-`, to stdout."""
    if out is None or str(out) == "-":
        for line in lines:
            click.echo(line, nl=False)
        return
    coming = iter(lines)
    first = list(islice(coming, 1))  # Before the file is opened: an error of the server leaves it unchanged.
    count = 0
    try:
        with _private(out) as file:
            for line in chain(first, coming):
                file.write(line)
                count += 1
    except OSError as error:
        raise Refused(f"{out} cannot be written: {error.strerror or error}.") from error
    done(f"exported {count} {what} to {out}")


def _private(path: Path) -> BinaryIO:
    """Readable only by its owner: it contains names and addresses."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
