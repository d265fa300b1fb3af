"""What becomes of a machine that asks to join: admitted, kept waiting for a person, or refused with a sentence.

The first rule that matches decides. A name belongs to the key it joined with, so nobody takes a name over, not even
with a good token, until a person has removed its identity.
"""

from enum import StrEnum

from homeport.core.model.identity import ANY_KEY, IdentityRecord, Standing
from homeport.errors import Conflict, Refused


class Verdict(StrEnum):
    ADMIT = "admit"
    WAIT = "wait"


def decide(known: IdentityRecord | None, spki: str, *, name: str, invited: bool) -> Verdict:
    """`known` is what the records have under the wanted name, `invited` whether a good join token was shown.

    Raises Conflict or Refused.
    """
    standing = None if known is None else known.standing
    same_key = known is not None and known.spki == spki
    if standing is Standing.ACCEPTED and same_key:
        return Verdict.ADMIT  # its first answer was lost, or its certificate was
    if standing is Standing.ACCEPTED:
        raise Conflict(
            f'"{name}" has joined already, with another key.',
            hint=f"If that machine is gone, remove it first:  homeport identity remove {name}",
        )
    if invited:
        return Verdict.ADMIT
    if standing is Standing.PENDING and not same_key:
        # Otherwise a stranger could slip a key of its own under a request that a person is about to approve.
        raise Conflict(
            f'Another key is waiting for approval under the name "{name}".',
            hint=f"Deny it first with  homeport identity remove {name} , or join with a token.",
        )
    if standing is Standing.REMOVED and same_key:
        raise Refused(
            f'"{name}" was removed, and its key is no longer accepted.',
            hint="Make a join command for it, or start it with a fresh identity folder.",
        )
    return Verdict.WAIT


def fits(known: str, spki: str) -> bool:
    """Whether a certificate with the key `spki` is that of the machine which was accepted with `known`."""
    return known in (ANY_KEY, spki)


def renewal_refusal(known: IdentityRecord | None, spki: str, *, name: str) -> str | None:
    """Why a certificate is not renewed; None when the request proves the key that the records know."""
    if known is None:
        return f'Nobody called "{name}" has joined here.'
    if known.standing is Standing.REMOVED:
        return f'"{name}" was removed.'
    if known.standing is Standing.PENDING:
        return f'"{name}" has not been approved yet.'
    if known.spki != spki:
        return f'The request is signed with another key than the one "{name}" joined with.'
    return None
