"""Whether a machine that asks to join is admitted, kept pending for approval, or refused with a reason.

The first rule that matches decides. A name belongs to the key it joined with: it cannot be taken over, not even with
a valid token, until an administrator has removed the identity.
"""

from enum import StrEnum

from homeport.core.model.identity import ANY_KEY, IdentityRecord, IdentityStatus
from homeport.errors import Conflict, Refused


class AdmissionVerdict(StrEnum):
    ADMIT = "admit"
    WAIT = "wait"


def decide(known: IdentityRecord | None, spki: str, *, name: str, invited: bool) -> AdmissionVerdict:
    """`known` is the record of the requested name, `invited` whether a valid join token was presented.

    Raises Conflict or Refused.
    """
    standing = None if known is None else known.standing
    same_key = known is not None and known.spki == spki
    if standing is IdentityStatus.ACCEPTED and same_key:
        return AdmissionVerdict.ADMIT  # its first response or its certificate was lost
    if standing is IdentityStatus.ACCEPTED:
        raise Conflict(
            f'"{name}" has joined already, with another key.',
            hint=f"If that machine is gone, remove it first:  homeport identity remove {name}",
        )
    if invited:
        return AdmissionVerdict.ADMIT
    if standing is IdentityStatus.PENDING and not same_key:
        # Otherwise an attacker could replace the key of a request that an administrator is about to approve.
        raise Conflict(
            f'Another key is waiting for approval under the name "{name}".',
            hint=f"Deny it first with  homeport identity remove {name} , or join with a token.",
        )
    if standing is IdentityStatus.REMOVED and same_key:
        raise Refused(
            f'"{name}" was removed, and its key is no longer accepted.',
            hint="Make a join command for it, or start it with a fresh identity folder.",
        )
    return AdmissionVerdict.WAIT


def fits(known: str, spki: str) -> bool:
    """Whether a certificate with the key `spki` belongs to the machine that was accepted with `known`."""
    return known in (ANY_KEY, spki)


def renewal_refusal(known: IdentityRecord | None, spki: str, *, name: str) -> str | None:
    """Why a certificate is not renewed; None when the request proves possession of the recorded key."""
    if known is None:
        return f'"{name}" has not joined here.'
    if known.standing is IdentityStatus.REMOVED:
        return f'"{name}" was removed.'
    if known.standing is IdentityStatus.PENDING:
        return f'"{name}" has not been approved yet.'
    if known.spki != spki:
        return f'The request is signed with another key than the one "{name}" joined with.'
    return None
