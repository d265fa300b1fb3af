"""What admission needs to know about a model of the catalog."""

from enum import StrEnum

from homeport.lazy_dataclass import dataclass


class ModelLifecycle(StrEnum):
    ACTIVE = "Active"
    RETIRED = "Retired"
    """Refused at admission; pools unload it."""


@dataclass(frozen=True, slots=True)
class CatalogModel:
    id: str
    lifecycle: ModelLifecycle = ModelLifecycle.ACTIVE
    is_verified: bool | None = None
    """Whether its content has the digest that was expected; None where none was. False blocks admission."""
    is_trusted: bool = True
    """Whether the trust policy allows it."""
    ends_at_ms: int = 0
    """Of a retired one: what it has taken ends then, in milliseconds since 1970. 0: it may finish."""
    is_removed: bool = False
    """It was retired and then removed from the catalog: it stays retired until it is added again."""
    is_read: bool = True
    """False while it is unknown, because the catalog was not read yet."""
