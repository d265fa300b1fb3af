"""Who asks, from a request. Until tokens exist, being on this machine is what makes somebody an administrator."""

from typing import Annotated

from fastapi import Depends, Request

from homeport.core.model.caller import Caller, Role
from homeport.errors import Refused
from homeport.serving.guards import is_loopback


def caller_of(request: Request) -> Caller:
    address = request.client.host if request.client else ""
    if address and not is_loopback(address):
        raise Refused("Only programs on this machine are answered.", hint="Access tokens do not exist yet.")
    return Caller("local", Role.ADMIN, address)


CallerOf = Annotated[Caller, Depends(caller_of)]
