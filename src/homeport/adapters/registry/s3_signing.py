"""Signs a request to an S3-compatible store (AWS Signature Version 4), for reading private objects. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()
ALGORITHM: Final = "AWS4-HMAC-SHA256"


def signed_headers(
    url: str,
    *,
    access_key: str,
    secret_key: str,
    region: str,
    at: datetime,
    session_token: str = "",
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a GET of the URL needs. `headers` (in lower case) are signed with it; the path is quoted already."""
    parts = urlsplit(url)
    moment = at.strftime("%Y%m%dT%H%M%SZ")
    own = {"x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": moment}
    if session_token:
        own["x-amz-security-token"] = session_token
    signed = dict(sorted({"host": parts.netloc, **own, **(headers or {})}.items()))
    names = ";".join(signed)
    request = "\n".join(
        (
            "GET",
            parts.path or "/",
            "",
            *(f"{name}:{value}" for name, value in signed.items()),
            "",
            names,
            EMPTY_SHA256,
        )
    )
    place = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join((ALGORITHM, moment, place, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{secret_key}".encode()
    for part in (*place.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    login = f"{ALGORITHM} Credential={access_key}/{place},SignedHeaders={names},Signature={key.hex()}"
    return {**own, "authorization": login}


def object_url(endpoint: str, bucket: str, key: str) -> str:
    """Path style, which every S3-compatible store understands."""
    return f"{endpoint}/{bucket}/{quote(key, safe='/-_.~')}"
