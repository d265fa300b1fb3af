"""Git: one remote repository and branch, through our own bare clone. See `homeport.ports.GitSource`."""

from homeport.adapters.git.address import redact
from homeport.adapters.git.bare import create_bare
from homeport.adapters.git.mirror import Mirror
from homeport.adapters.git.repository import Repository, open_repository, snapshot

__all__ = ["Mirror", "Repository", "create_bare", "open_repository", "redact", "snapshot"]
