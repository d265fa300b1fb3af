"""A person with plain git: what somebody else does to a repository, beside what Homeport does to it."""

import os
import subprocess
from pathlib import Path

QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Pat Person",
    "GIT_AUTHOR_EMAIL": "pat@example.org",
    "GIT_COMMITTER_NAME": "Pat Person",
    "GIT_COMMITTER_EMAIL": "pat@example.org",
}


def git(*arguments: str, cwd: Path | None = None) -> str:
    """Runs git without anybody's own settings; returns what it printed, raises when it failed."""
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=os.environ | QUIET, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


def bare_repository(path: Path, branch: str = "main") -> Path:
    git("init", "--quiet", "--bare", f"--initial-branch={branch}", str(path))
    git("config", "http.receivepack", "true", cwd=path)
    return path


def move(repository: Path, name: str) -> Path:
    """Renames a repository, as when its server moves or loses it."""
    return repository.rename(repository.with_name(name))


class Person:
    """A working copy of `url` in `folder`; the branch need not exist yet."""

    def __init__(self, url: str, folder: Path, branch: str = "main") -> None:
        self.folder = folder
        self.branch = branch
        git("init", "--quiet", f"--initial-branch={branch}", str(folder))
        git("remote", "add", "origin", url, cwd=folder)
        self.pull()

    def pull(self) -> None:
        git("fetch", "--quiet", "origin", cwd=self.folder)
        if git("ls-remote", "origin", f"refs/heads/{self.branch}", cwd=self.folder):
            git("reset", "--quiet", "--hard", f"origin/{self.branch}", cwd=self.folder)

    def remote(self, url: str | Path) -> None:
        """Where this repository is from now on."""
        git("remote", "set-url", "origin", str(url), cwd=self.folder)

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        return (self.folder / path).read_text()

    def remove(self, path: str) -> None:
        git("rm", "--quiet", "-r", path, cwd=self.folder)

    def amend(self, message: str) -> None:
        git("commit", "--quiet", "--amend", "--message", message, cwd=self.folder)

    def commit(self, message: str = "by hand") -> str:
        git("add", "--all", cwd=self.folder)
        git("commit", "--quiet", "--allow-empty", "--message", message, cwd=self.folder)
        return git("rev-parse", "HEAD", cwd=self.folder)

    def set_back(self, commit: str) -> None:
        """The branch, to an older commit."""
        git("fetch", "--quiet", "origin", cwd=self.folder)
        git("push", "--quiet", "--force", "origin", f"{commit}:refs/heads/{self.branch}", cwd=self.folder)

    def push(self, message: str = "by hand", *, force: bool = False) -> str:
        """Commits everything in the working copy and pushes it; returns the commit."""
        commit = self.commit(message)
        forced = ["--force"] if force else []
        git("push", "--quiet", *forced, "origin", f"HEAD:refs/heads/{self.branch}", cwd=self.folder)
        return commit
