"""What a site knows of its links, for /readyz: the sentence that says what is wrong, or nothing."""

from collections.abc import Mapping

OK = "ok"


class Contact:
    def __init__(self, *, has_central: bool) -> None:
        self._git: str | None = "not read yet"
        self._central: str | None = "not called yet" if has_central else None

    def of_git(self, problem: str | None) -> None:
        self._git = problem

    def of_central(self, problem: str | None) -> None:
        self._central = problem

    async def checks(self) -> Mapping[str, str]:
        """A site works with central gone, so central is told of but its absence alone is no lack of readiness."""
        return {"git": self._git or OK}

    def notes(self) -> Mapping[str, str]:
        return {"central": self._central or OK}
