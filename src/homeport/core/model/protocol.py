"""The protocol version of the messages between roles, and which versions are compatible.

Every hello carries it, in both directions. Each release has its own number, whether or not a message has changed;
features name what the sender supports beyond the first release, and are checked one by one. A peer that sends no
version is of the first release (ADR 0046).
"""

from collections.abc import Iterable
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Feature

FIRST: Final = 1
"""The version of a peer that sends none."""
VERSION: Final = 2
"""The version of this release."""
SKEW_MAX: Final = 1
"""By how many releases two connected roles may differ."""
VERSION_MAX: Final = 2**31 - 1
FEATURES_MAX: Final = 64
FEATURE_LENGTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class PeerProtocol:
    version: int = FIRST
    features: tuple[str, ...] = ()
    """Sorted."""

    @classmethod
    def said(cls, version: object, features: Iterable[object] = ()) -> "PeerProtocol":
        """The protocol that a peer announced, bounded. An invalid number counts as none."""
        number = version if isinstance(version, int) and FIRST <= version <= VERSION_MAX else FIRST
        names = {each for each in features if isinstance(each, str) and 0 < len(each) <= FEATURE_LENGTH_MAX}
        return cls(int(number), tuple(sorted(names)[:FEATURES_MAX]))

    def has(self, feature: Feature) -> bool:
        return feature.value in self.features


UNSAID: Final = PeerProtocol()
OWN: Final = PeerProtocol(VERSION, tuple(sorted(feature.value for feature in Feature)))


def skew(peer: str, theirs: PeerProtocol, *, us: str, ours: int = VERSION) -> str | None:
    """Why the two are incompatible, and which of them to upgrade; None where they are compatible."""
    if abs(theirs.version - ours) <= SKEW_MAX:
        return None
    older = us if theirs.version > ours else peer
    return (
        f"{peer[:1].upper()}{peer[1:]} speaks protocol {theirs.version} and {us} speaks {ours}: they are more than"
        f" one release apart. Upgrade {older}, one release at a time."
    )
