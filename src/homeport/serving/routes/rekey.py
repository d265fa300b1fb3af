"""Changes the key that encrypts a role's stored secrets. Central and every site have one each."""

from collections.abc import Awaitable, Callable
from typing import Final

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.identity.rekeying import Rekeyed
from homeport.serving.bodies.body import Body
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router


class RekeyedBody(Body):
    key_number: int
    """The number of the new key, counted from the first."""
    secrets: int
    """How many were encrypted with it."""
    unreadable: int
    """How many cannot be decrypted with any key of this vault: set them again."""


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/secrets/rotate-key"): Action("secrets.rotate-key", Level.ADMIN, Scope.FLEET, Audit.WAIT),
}
# fmt: on


def sealing_routes(rotate: Callable[[], Awaitable[Rekeyed]]) -> Routes:
    router = Router(tags=["secrets"])

    @router.post("/api/v1/secrets/rotate-key", summary="Seal every secret kept here with a new key")
    async def rotate_key(caller: CallerOf) -> RekeyedBody:
        """The old key is deleted once it is no longer needed. Values and versions stay, nothing restarts."""
        done = await rotate()
        return RekeyedBody(key_number=done.key_number, secrets=done.secrets, unreadable=done.unreadable)

    return Routes(router, ACTIONS)
