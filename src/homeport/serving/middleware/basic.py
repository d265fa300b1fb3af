"""HTTP Basic login for programs that support only user and password: the password is an access token, the user is
ignored.

Only for the ports of such programs. On the API it would let a web page use the browser's stored credentials.
"""

import base64
import binascii

from starlette.types import ASGIApp, Receive, Scope, Send


class BasicAsBearer:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [_as_bearer(name, value) for name, value in scope["headers"]]}
        await self._app(scope, receive, send)


def _as_bearer(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    scheme, _, encoded = value.strip().partition(b" ")
    if name.lower() != b"authorization" or scheme.lower() != b"basic":
        return name, value
    try:
        _, _, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        password = b""
    # A token consists of letters, digits and underscores. Anything else stays an invalid token: bad credentials must
    # not count as no credentials.
    is_like_a_token = password.isascii() and password.replace(b"_", b"").isalnum()
    return name, b"Bearer " + (password if is_like_a_token else b"")
