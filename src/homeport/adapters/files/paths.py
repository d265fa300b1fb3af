"""Paths that people write: in a command, or in a request to central."""

from pathlib import Path

from homeport.errors import InvalidInput, Problem


def written_path(text: str) -> Path:
    """With `~` expanded where that user exists. The text may also be a URL, so nothing is refused."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def exists(path: Path) -> bool:
    """Also for what no file can be called, such as a URL whose parts are longer than a name may be."""
    try:
        return path.exists()
    except OSError:
        return False


def local_path(text: str, field: str) -> Path:
    """Absolute. Raises InvalidInput for what cannot be the name of a file or folder on this machine."""
    path = written_path(text).absolute()
    try:
        path.exists()
    except OSError as error:
        raise InvalidInput(problems=[Problem(field, f"cannot be a path here: {error.strerror}.")]) from error
    return path
