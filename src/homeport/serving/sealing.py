"""Changing the key with which a role seals the secrets that it keeps. Central and every site have one each."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends

from homeport.core.model.caller import Caller
from homeport.fleet.rekeying import Rekeyed
from homeport.serving.bodies.body import Body
from homeport.serving.callers import allowed


class RekeyedBody(Body):
    key_number: int
    """Which key this is, counted from the first."""
    secrets: int
    """How many were sealed with it."""
    unreadable: int
    """How many no key of this vault opens, before as after: set them again."""


def sealing_router(rotate: Callable[[], Awaitable[Rekeyed]]) -> APIRouter:
    router = APIRouter(tags=["secrets"])

    @router.post("/api/v1/secrets/rotate-key", summary="Seal every secret kept here with a new key")
    async def rotate_key(caller: Annotated[Caller, Depends(allowed("secrets.rotate-key"))]) -> RekeyedBody:
        """The old key is deleted when nothing needs it any longer. Values and versions stay, nothing restarts."""
        done = await rotate()
        return RekeyedBody(key_number=done.key_number, secrets=done.secrets, unreadable=done.unreadable)

    return router
