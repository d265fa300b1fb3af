"""The registry's errors: a code of the Distribution specification and a sentence, in the format that every client
reads."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from homeport.errors import PermanentError


class SpecCode(StrEnum):
    BLOB_UNKNOWN = "BLOB_UNKNOWN"
    BLOB_UPLOAD_INVALID = "BLOB_UPLOAD_INVALID"
    BLOB_UPLOAD_UNKNOWN = "BLOB_UPLOAD_UNKNOWN"
    DIGEST_INVALID = "DIGEST_INVALID"
    MANIFEST_BLOB_UNKNOWN = "MANIFEST_BLOB_UNKNOWN"
    MANIFEST_INVALID = "MANIFEST_INVALID"
    MANIFEST_UNKNOWN = "MANIFEST_UNKNOWN"
    NAME_INVALID = "NAME_INVALID"
    NAME_UNKNOWN = "NAME_UNKNOWN"
    SIZE_INVALID = "SIZE_INVALID"
    UNAUTHORIZED = "UNAUTHORIZED"
    DENIED = "DENIED"
    UNSUPPORTED = "UNSUPPORTED"
    TOOMANYREQUESTS = "TOOMANYREQUESTS"
    UNAVAILABLE = "UNAVAILABLE"
    """Ours: a retry may succeed."""
    UNKNOWN = "UNKNOWN"
    """Ours: for errors without a code in the specification."""


STATUS: Final[Mapping[SpecCode, int]] = {
    SpecCode.BLOB_UNKNOWN: 404,
    SpecCode.BLOB_UPLOAD_INVALID: 400,
    SpecCode.BLOB_UPLOAD_UNKNOWN: 404,
    SpecCode.DIGEST_INVALID: 400,
    SpecCode.MANIFEST_BLOB_UNKNOWN: 404,
    SpecCode.MANIFEST_INVALID: 400,
    SpecCode.MANIFEST_UNKNOWN: 404,
    SpecCode.NAME_INVALID: 400,
    SpecCode.NAME_UNKNOWN: 404,
    SpecCode.SIZE_INVALID: 400,
    SpecCode.UNAUTHORIZED: 401,
    SpecCode.DENIED: 403,
    SpecCode.UNSUPPORTED: 405,
    SpecCode.TOOMANYREQUESTS: 429,
    SpecCode.UNAVAILABLE: 503,
    SpecCode.UNKNOWN: 500,
}


class RegistryProblem(PermanentError):
    """A request that the registry does not carry out."""

    def __init__(
        self,
        code: SpecCode,
        message: str,
        *,
        status: int | None = None,
        detail: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS[code] if status is None else status
        self.detail = detail
        self.headers = headers or {}


def envelope(code: str, message: str, detail: Any = None) -> bytes:
    error: dict[str, Any] = {"code": str(code), "message": message}
    return json.dumps({"errors": [error if detail is None else error | {"detail": detail}]}).encode()
