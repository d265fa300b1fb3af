"""A join token sent from central to the site that will redeem it: everything but its secret."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.errors import InvalidInput
from homeport.vocabulary import SiteName


def encode(token: JoinToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "kind": token.kind.value,
        "site": token.site,
        "hash": token.hash,
        "created_at": token.created_at.isoformat(),
        "created_by": token.created_by,
        "expires_at": token.expires_at.isoformat(),
    }


def decode(body: Mapping[str, Any]) -> JoinToken:
    try:
        return JoinToken(
            id=str(body["id"]),
            kind=IdentityKind(body["kind"]),
            site=SiteName(str(body["site"])),
            hash=str(body["hash"]),
            created_at=datetime.fromisoformat(body["created_at"]),
            created_by=str(body["created_by"]),
            expires_at=datetime.fromisoformat(body["expires_at"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidInput("This is not a join token.") from error
