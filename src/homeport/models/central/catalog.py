"""The catalog of models: rows of the database that all centrals share, with a copy in memory, because admission asks
for every task. What lies on this central's own disk is known to its file index alone (`models/store/index`)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import anyio
from anyio.to_thread import run_sync

from homeport.core.inference.models.entries import ModelEntry, Verification, removed, verified
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.errors import Conflict, NotFound, TransientError
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.log import get_log
from homeport.models.central.trust import ModelTrust
from homeport.models.store.fetching import LocalModel, digest_of_file, entry_path, remove_files
from homeport.models.store.index import INDEX, ModelIndex, write_atomically
from homeport.ports import Bus, Clock, Message, Store, Transaction

log = get_log("homeport.models")
T = TypeVar("T")

TOPIC: Final = "models.catalog"
MODELS_MAX: Final = 10_000
RETRY_SECONDS: Final = 2.0
IMPORTED: Final = f"{INDEX}.imported"
"""Says that what an earlier release kept as its catalog in the index are rows now."""
_ACTIVE: Final = ModelLifecycle.ACTIVE
_CHECKED: Final = {Verification.PASSED.value: True, Verification.FAILED.value: False}


class Catalog:
    """Implements `ports.ModelCatalog`."""

    def __init__(self, store: Store, bus: Bus, clock: Clock, trust: ModelTrust, index: ModelIndex) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._trust = trust
        self._index = index
        self._states: Mapping[str, ModelLifecycle] = {}
        self._known: Mapping[str, CatalogModel] | None = None
        """By id, and by reference where no id is like it; None before the first read."""
        self._on_request: Mapping[str, ModelEntry] = {}
        """By id, and by reference, those that are served on request."""
        self._being_removed: set[str] = set()
        """Models that are being removed here: a read that began before does not see that yet."""
        self._removed_elsewhere: set[str] = set()
        """Models that another central has removed, whose files here go with the next read."""
        self._reading = anyio.Lock()
        self._changed = anyio.Event()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called whenever it was read again. Must not block."""
        self._listeners.append(listener)

    # --- what admission asks ------------------------------------------------------------------------------------

    def states(self) -> Mapping[str, ModelLifecycle]:
        return self._states

    def find(self, reference: str) -> CatalogModel | None:
        if self._known is None:
            return CatalogModel(reference, is_read=False)
        found = self._known.get(reference)
        if found is not None or self._trust.allows_unknown:
            return found
        # Where models need a signature, one that was never added has none.
        return CatalogModel(reference, is_trusted=False)

    def served_on_request(self, reference: str) -> ModelEntry | None:
        """None where the first task for it starts nothing."""
        return self._on_request.get(reference)

    def offered(self) -> Mapping[str, tuple[str, str]]:
        """The site and engine of each model that is served on request, and may be."""
        found = {each.id: each for each in self._on_request.values() if self._states.get(each.id) is _ACTIVE}
        return {
            each.id: (each.on_request.site, each.on_request.engine)
            for each in found.values()
            if each.on_request is not None
        }

    # --- what people and programs ask ---------------------------------------------------------------------------

    async def entries(self) -> Mapping[str, ModelEntry]:
        async with self._store.read() as reader:
            return {entry.id: entry for entry in await reader.catalog_models() if not entry.is_removed}

    async def get(self, model_id: str) -> ModelEntry:
        """Raises NotFound."""
        async with self._store.read() as reader:
            return self._there(await reader.catalog_model(model_id), model_id)

    async def find_entry(self, reference: str) -> ModelEntry | None:
        """By id, or by where it comes from."""
        entries = await self.entries()
        by_source = (entry for entry in entries.values() if entry.source == reference)
        return entries.get(reference) or next(by_source, None)

    async def put(self, entry: ModelEntry) -> ModelEntry:
        """Adds a model, or describes it again: whether it is retired stays as it was, unless it was removed since."""

        async def put(transaction: Transaction) -> ModelEntry:
            known = await transaction.catalog_model(entry.id)
            if known is None and await transaction.count_catalog_models() >= MODELS_MAX:
                raise Conflict(f"The catalog has {MODELS_MAX} models.", hint="Remove some that are not needed.")
            changed = await transaction.change_catalog_model(entry.id, lambda old: _described_again(old, entry))
            assert changed is not None
            return changed

        stored = await self._write(put)
        line = {"ts_ms": self._now_ms(), "model_id": entry.id, "path": "", "size_bytes": entry.size_bytes}
        cfg = {"model_ref": entry.source, "digest": entry.digest}
        await run_sync(self._index.note, {**line, "cfg": cfg})
        return stored

    async def set_state(self, model_id: str, state: ModelLifecycle, deadline_ms: int | None) -> ModelEntry:
        """What a retired model has taken ends after so many milliseconds; without a deadline it may finish. Raises
        NotFound."""
        is_ended = state is ModelLifecycle.RETIRED and deadline_ms is not None
        ends_at_ms = self._now_ms() + (deadline_ms or 0) if is_ended else 0
        return await self.change(model_id, lambda entry: replace(entry, state=state, ends_at_ms=ends_at_ms))

    async def change(self, model_id: str, change: Callable[[ModelEntry], ModelEntry]) -> ModelEntry:
        """Raises NotFound."""

        async def apply(transaction: Transaction) -> ModelEntry:
            changed = await transaction.change_catalog_model(model_id, lambda old: change(self._there(old, model_id)))
            return self._there(changed, model_id)

        return await self._write(apply)

    async def remove(self, model_id: str) -> None:
        """With its files on this disk, and soon on those of other centrals that run. Raises NotFound."""

        async def drop(transaction: Transaction) -> None:
            await transaction.change_catalog_model(model_id, lambda old: removed(self._there(old, model_id)))

        self._being_removed.add(model_id)
        try:
            await self._write(drop, {"removed": model_id})
        finally:
            self._being_removed.discard(model_id)

    async def pulled(self, model_id: str, found: LocalModel) -> None:
        """Its files have arrived on this disk, and have this digest. Raises NotFound where it was removed since."""
        await self.change(
            model_id,
            lambda entry: replace(
                entry,
                digest=found.digest,
                size_bytes=found.size_bytes,
                verification=Verification.PASSED.value,
                last_verified_ms=self._now_ms(),
            ),
        )

    def path_of(self, entry: ModelEntry) -> Path | None:
        """Its file on this disk, or a file of this machine that the entry refers to."""
        local = self._index.entries().get(entry.id)
        return entry_path(self._index, local if local is not None and local.source == entry.source else entry)

    def is_own(self, path: Path) -> bool:
        """Whether it is a file of the store, and not one that an entry only refers to."""
        return path.is_relative_to(self._index.folder.resolve())

    async def verify(self, entry: ModelEntry, path: Path) -> tuple[ModelEntry, Verification]:
        """Hashes its file again; the entry then says how that went."""
        found = await run_sync(lambda: digest_of_file(path) if path.is_file() else None)
        at_ms = self._now_ms()
        changed = await self.change(entry.id, lambda each: verified(each, found, at_ms=at_ms))
        return changed, Verification(changed.verification)

    # --- the copy in memory -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reads again whenever something has changed, here or at another central."""
        forget = self._bus.subscribe(TOPIC, self._heard, on_gap=self._changed.set)
        try:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                if not await self._load():
                    await anyio.sleep(RETRY_SECONDS)
                    self._changed.set()
        finally:
            forget()

    async def load(self) -> None:
        """Reads it, and before that takes over the file of an earlier release. Where the database does not answer,
        `run` tries again."""
        if not await self._load():
            self._changed.set()

    async def _load(self) -> bool:
        try:
            await self._import()
            await self._read()
        except TransientError as error:
            log.warning("model catalog not read, will try again", why=str(error))
            return False
        return True

    async def _write(self, work: Callable[[Transaction], Awaitable[T]], news: Message | None = None) -> T:
        result = await self._store.write(work)
        await self._read()
        self._bus.publish(TOPIC, news or {})
        return result

    def _heard(self, message: Message) -> None:
        if isinstance(message.get("removed"), str):
            self._removed_elsewhere.add(str(message["removed"]))
        self._changed.set()

    async def _read(self) -> None:
        async with self._reading:
            # Taken before the read: what is heard of meanwhile may not be seen by it, and is for the next one.
            removed_elsewhere, self._removed_elsewhere = self._removed_elsewhere, set()
            async with self._store.read() as reader:
                entries = await reader.catalog_models()
            # What was removed counts only where nothing else has its source.
            in_order = sorted(entries, key=lambda entry: not entry.is_removed)
            judged = {entry.id: self._judged(entry) for entry in in_order}
            by_source = {entry.source: judged[entry.id] for entry in in_order if entry.source}
            self._known = {**by_source, **judged}
            offered = [each for each in entries if each.on_request is not None and not each.is_removed]
            self._on_request = {each.source: each for each in offered} | {each.id: each for each in offered}
            self._states = {entry.id: entry.state for entry in entries if not entry.is_removed}
            removed_rows = {entry.id for entry in entries if entry.is_removed}
            gone = self._being_removed | removed_elsewhere | removed_rows
            await run_sync(self._drop_files, frozenset(gone - self._states.keys()))
        for listener in self._listeners:
            listener()

    def _judged(self, entry: ModelEntry) -> CatalogModel:
        is_verified = _CHECKED.get(entry.verification)
        return CatalogModel(
            entry.id,
            entry.state,
            is_verified,
            is_trusted=self._trust.allows(entry),
            ends_at_ms=entry.ends_at_ms,
            is_removed=entry.is_removed,
        )

    def _drop_files(self, gone: frozenset[str]) -> None:
        """Of models that were removed. One that the catalog never heard of stays: its database may be an older copy,
        or a new one."""
        for entry in self._index.entries().values():
            if entry.id in gone:
                remove_files(self._index, entry)
                self._index.remove(entry.id)

    async def _import(self) -> None:
        """Once: what an earlier release kept in the file becomes rows, unless another central has such a row."""
        marker = self._index.folder / IMPORTED
        if await run_sync(marker.exists):
            return
        rows = [replace(entry, local_path="") for entry in (await run_sync(self._index.entries)).values()]
        if rows:
            await self._store.write(lambda transaction: transaction.add_catalog_models(rows))
            log.info("models taken over from the catalog's file", count=len(rows))
            self._bus.publish(TOPIC, {})
        await run_sync(write_atomically, marker, b"")

    def _there(self, entry: ModelEntry | None, model_id: str) -> ModelEntry:
        if entry is None or entry.is_removed:
            hint = did_you_mean(model_id, self.states(), "homeport models list")
            raise NotFound(f'There is no model "{model_id}".', hint=hint)
        return entry

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _described_again(old: ModelEntry | None, entry: ModelEntry) -> ModelEntry:
    if old is None or old.is_removed:
        return entry
    return replace(entry, state=old.state, ends_at_ms=old.ends_at_ms)
