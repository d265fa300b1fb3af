"""The state of a site's source of desired state, for /readyz: a sentence that says what is wrong, or nothing."""

from collections.abc import Mapping

from homeport.adapters.files.disk import WriteProbe

OK = "ok"


class SiteContact:
    def __init__(self, disk: WriteProbe | None = None) -> None:
        self._disk = disk
        self._git: str | None = "not read yet"
        self._wfm: Mapping[str, str] = {}

    def of_git(self, problem: str | None) -> None:
        self._git = problem

    def of_wfm(self, problem: str | None) -> None:
        """Only a site that follows a Margo fleet manager has one."""
        self._wfm = {"wfm": problem or OK}

    async def checks(self) -> Mapping[str, str]:
        """A site works without central, so central's absence does not make it unready."""
        disk = {} if self._disk is None else {"disk": await self._disk.check()}
        return {"git": self._git or OK, **self._wfm, **disk}
