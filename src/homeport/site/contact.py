"""What a site knows of its repository, for /readyz: the sentence that says what is wrong, or nothing."""

from collections.abc import Mapping

OK = "ok"


class Contact:
    def __init__(self) -> None:
        self._git: str | None = "not read yet"

    def of_git(self, problem: str | None) -> None:
        self._git = problem

    async def checks(self) -> Mapping[str, str]:
        """A site works with central gone, so its absence is no lack of readiness."""
        return {"git": self._git or OK}
