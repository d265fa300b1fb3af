"""One-time codes with which `homeport dashboard` opens a browser that is logged in already.

A code is exchanged for the access token of the user who asked for it, so that the token itself is in no address,
process list or history. It is known to this process alone, for a minute, and used once."""

import secrets
from collections import OrderedDict
from dataclasses import field
from typing import Final

from homeport.errors import Unauthenticated
from homeport.lazy_dataclass import dataclass

SECONDS: Final = 60.0
CODES_MAX: Final = 1_000


@dataclass(slots=True)
class LoginCodes:
    _codes: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)
    """code -> access token and when it expires, oldest first."""

    def create(self, token: str, moment: float) -> str:
        while self._codes and (len(self._codes) >= CODES_MAX or next(iter(self._codes.values()))[1] <= moment):
            self._codes.popitem(last=False)
        code = secrets.token_urlsafe(32)
        self._codes[code] = token, moment + SECONDS
        return code

    def redeem(self, code: str, moment: float) -> str:
        """The access token it is exchanged for. Raises Unauthenticated."""
        token, expires = self._codes.pop(code, ("", 0.0))
        if not token or expires <= moment:
            raise Unauthenticated(
                "This link was used already, or is older than a minute.", hint="Run  homeport dashboard  again."
            )
        return token
