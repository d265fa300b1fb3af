"""Creates a bare repository: the home profile's deployments, to which users may push as well."""

import secrets
import shutil
from pathlib import Path

import pygit2

from homeport.errors import InvalidInput, Refused


def create_bare(path: Path, branch: str = "main") -> None:
    """An empty bare repository whose HEAD is `branch`; an existing one stays unchanged.

    It is created in a temporary folder and moved into place, so that a crash leaves none or all of it.
    """
    reference = checked_branch(branch)
    if path.exists() and any(path.iterdir()):
        if (path / "HEAD").exists() and (path / "objects").is_dir():
            return
        raise Refused(f"{path} is not empty and not a bare Git repository.", hint="Choose an empty folder.")
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        repository = pygit2.init_repository(new, bare=True, initial_head=reference.removeprefix("refs/heads/"))
        repository.config["core.logAllRefUpdates"] = True  # a forced push can be undone by an administrator
        repository.config["core.fsync"] = "all"  # the record of desired state survives a power cut
        repository.config["gc.auto"] = 2000  # every commit has a new tree of all sites, so pack them early
        repository.config["http.receivepack"] = True
        repository.config["receive.fsckObjects"] = True  # a malformed commit would be unreadable for every role
        repository.free()
        new.replace(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def checked_branch(branch: str) -> str:
    """The full name of a branch's ref. Raises InvalidInput."""
    reference = f"refs/heads/{branch}"
    if branch.startswith("-") or not pygit2.reference_is_valid_name(reference):
        raise InvalidInput(f'"{branch}" is not a valid name for a branch.')
    return reference
