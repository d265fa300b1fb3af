"""Brings models of the catalog to central's own disk, one after the other, and says how far each has come.

What is under way is known to this process alone. A pull that a restart has broken goes on where it was when it is
asked for again.
"""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import anyio

from homeport.adapters.network.reach import public_addresses_only
from homeport.core.access.reach import may_reach_private
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.models.references import Scheme, parse_reference
from homeport.core.model.caller import Caller
from homeport.core.values.addresses import is_private
from homeport.errors import Conflict, HomeportError, InvalidInput, NotAuthorized
from homeport.fleet.central.platform import CentralPlatform
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.central.catalog import Catalog
from homeport.models.store.fetching import ModelFetcher

log = get_log("homeport.models")
WAITING_MAX: Final = 100
KNOWN_MAX: Final = 1_000


def check_reach(entry: ModelEntry, caller: Caller) -> None:
    """Raises NotAuthorized where the answer alone would reveal something about central's machine or network."""
    reference = parse_reference(entry.source)
    if may_reach_private(caller):
        return
    if reference.scheme is Scheme.FILE:
        what = "files of central's machine"
    elif reference.scheme in {Scheme.HTTPS, Scheme.OCI} and is_private(reference.host):
        what = f"models of the private address {reference.host}"
    else:
        return
    raise NotAuthorized(f"Only an administrator may have central read {what}.", hint="Ask an administrator to do it.")


class PullState(StrEnum):
    WAITING = "waiting"
    PULLING = "pulling"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class Pull:
    state: PullState
    done_bytes: int = 0
    total_bytes: int = 0
    """0 while it is not known."""
    problem: str = ""

    def note(self, done: int, total: int) -> None:
        self.done_bytes, self.total_bytes = done, total

    @property
    def is_over(self) -> bool:
        return self.state in {PullState.DONE, PullState.FAILED}


class Pulls:
    def __init__(self, fetcher: ModelFetcher, catalog: Catalog) -> None:
        self._fetcher = fetcher
        self._catalog = catalog
        self._pulls: dict[str, Pull] = {}
        self._waiting: deque[tuple[ModelEntry, bool]] = deque()
        """Each with whether it may come from public addresses only."""
        self._asked = anyio.Event()

    @property
    def known(self) -> Mapping[str, Pull]:
        return self._pulls

    def start(self, entry: ModelEntry, caller: Caller) -> None:
        """A pull that is under way goes on. Raises InvalidInput, Conflict, NotAuthorized."""
        if not entry.source:
            raise InvalidInput(f"{entry.id} has no source to pull from.", hint="Add it again with its address.")
        if parse_reference(entry.source).scheme is Scheme.FILE:
            raise InvalidInput(f"{entry.id} is a file of a machine: there is nothing to pull.")
        check_reach(entry, caller)
        known = self._pulls.get(entry.id)
        if known is not None and not known.is_over:
            return
        if len(self._waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} models wait to be pulled already."
            raise Conflict(text, hint="Wait for some of them.")
        self._pulls.pop(entry.id, None)
        while len(self._pulls) >= KNOWN_MAX:
            del self._pulls[next(iter(self._pulls))]
        self._pulls[entry.id] = Pull(PullState.WAITING)
        self._waiting.append((entry, not may_reach_private(caller)))
        self._asked.set()

    async def run(self, _central: CentralPlatform) -> None:
        while True:
            while self._waiting:
                entry, is_limited = self._waiting.popleft()
                with public_addresses_only(is_limited=is_limited):
                    await self._bring(entry)
            self._asked = anyio.Event()
            await self._asked.wait()

    async def _bring(self, entry: ModelEntry) -> None:
        pull = self._pulls.setdefault(entry.id, Pull(PullState.WAITING))
        pull.state = PullState.PULLING
        try:
            found = await self._fetcher.fetch(
                entry.source, digest=entry.digest, model_id=entry.id, on_bytes=pull.note
            )
            await self._catalog.pulled(entry.id, found)
            pull.state = PullState.DONE
            log.info("model pulled", model=entry.id)
        except HomeportError as error:
            pull.state, pull.problem = PullState.FAILED, f"{error} {error.hint or ''}".strip()
            log.warning("model pull failed", model=entry.id, error=str(error))
        except Exception as error:  # A model that we stumble over harms itself alone.
            pull.state, pull.problem = PullState.FAILED, f"Homeport itself failed: {type(error).__name__}."
            log.exception("model pull failed", model=entry.id)
