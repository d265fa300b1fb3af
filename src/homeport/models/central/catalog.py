"""What admission asks the catalog, answered from memory."""

from collections.abc import Mapping
from typing import Final

from homeport.core.inference.models.entries import Verification
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.models.central.trust import ModelTrust
from homeport.models.store.index import ModelIndex

_CHECKED: Final = {Verification.PASSED.value: True, Verification.FAILED.value: False}


class Catalog:
    """Implements `ports.ModelCatalog`."""

    def __init__(self, index: ModelIndex, trust: ModelTrust) -> None:
        self._index = index
        self._trust = trust

    def states(self) -> Mapping[str, ModelLifecycle]:
        return {entry.id: entry.state for entry in self._index.entries().values()}

    def find(self, reference: str) -> CatalogModel | None:
        entries = self._index.entries()
        found = entries.get(reference) or next(
            (entry for entry in entries.values() if entry.source and entry.source == reference), None
        )
        if found is None:
            # Where models need a signature, one that was never added has none.
            return None if self._trust.allows_unknown else CatalogModel(reference, is_trusted=False)
        is_verified = _CHECKED.get(found.verification)
        return CatalogModel(found.id, found.state, is_verified, is_trusted=self._trust.allows(found))
