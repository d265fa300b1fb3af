"""Files of the web, models above all: the address of a reference, and reading it from an offset.

Hugging Face and S3 are web servers with rules of their own for addresses; registries are read through their client.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from anyio.to_thread import run_sync

from homeport.adapters.network.http_client import (
    ExchangeFailed,
    Streaming,
    parse_json,
    reason_of,
    route_to,
    small_number,
    stream,
    target_of,
)
from homeport.adapters.registry.s3_signing import object_url, signed_headers
from homeport.core.inference.models.references import DIGEST, WEB_SCHEMES, ModelReference, Scheme
from homeport.core.values.addresses import is_loopback, is_private
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

HF_ENDPOINT: Final = "https://huggingface.co"
REDIRECTS_MAX: Final = 8
SILENCE_SECONDS: Final = 60.0
LISTING_BYTES_MAX: Final = 32 * 2**20
NAME_LENGTH_MAX: Final = 200
ETAG_LENGTH_MAX: Final = 500
LINKED_ETAG: Final = "x-linked-etag"
"""By Hugging Face, of a large file: its SHA-256, which its storage does not repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSourceOptions:
    """What the machine's owner says about sources of models."""

    allow_downloads: bool = True
    hf_endpoint: str = HF_ENDPOINT
    hf_token: str = field(default="", repr=False)
    s3_endpoint: str = ""
    s3_region: str = "us-east-1"
    s3_access_key: str = ""
    s3_secret_key: str = field(default="", repr=False)
    s3_session_token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ModelSourceOptions":
        return cls(
            allow_downloads=environment.get("HOMEPORT_MODEL_DOWNLOADS", "yes").lower()
            not in ("no", "off", "false", "0"),
            hf_endpoint=environment.get("HF_ENDPOINT", "").rstrip("/") or HF_ENDPOINT,
            hf_token=environment.get("HF_TOKEN", ""),
            s3_endpoint=(environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL", "")).rstrip(
                "/"
            ),
            s3_region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
            s3_access_key=environment.get("AWS_ACCESS_KEY_ID", ""),
            s3_secret_key=environment.get("AWS_SECRET_ACCESS_KEY", ""),
            s3_session_token=environment.get("AWS_SESSION_TOKEN", ""),
        )


@dataclass(slots=True)
class WebFile:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to the first host only: storage that it redirects to must not see a token."""
    promised: Digest | None = None
    """By the first host, once it was asked."""


async def web_file(reference: ModelReference, options: ModelSourceOptions) -> WebFile:
    """Raises InvalidInput, NotFound, PeerUnavailable."""
    if reference.scheme is Scheme.HTTPS:
        return WebFile(reference.text)
    if reference.scheme is Scheme.S3:
        if not options.s3_endpoint:
            raise InvalidInput(
                f"{reference.text}: no S3 endpoint is known here.",
                hint="Set AWS_ENDPOINT_URL where the site runs, or use a presigned https:// address.",
            )
        url = object_url(options.s3_endpoint, reference.place, reference.path)
        return WebFile(url, _s3_login(url, options))
    headers = {"Authorization": f"Bearer {options.hf_token}"} if options.hf_token else {}
    path = reference.path or await _only_model(reference, options, headers)
    revision = quote(reference.revision or "main", safe="")
    return WebFile(f"{options.hf_endpoint}/{reference.place}/resolve/{revision}/{quote(path)}", headers)


def _s3_login(url: str, options: ModelSourceOptions) -> Mapping[str, str]:
    """None for a public bucket."""
    if not options.s3_access_key or not options.s3_secret_key:
        return {}
    return signed_headers(
        url,
        access_key=options.s3_access_key,
        secret_key=options.s3_secret_key,
        session_token=options.s3_session_token,
        region=options.s3_region,
        at=datetime.now(UTC),
    )


async def _only_model(reference: ModelReference, options: ModelSourceOptions, headers: Mapping[str, str]) -> str:
    """The one .gguf file of a repository; several are listed for a person to choose from."""
    url = f"{options.hf_endpoint}/api/models/{reference.place}"
    if reference.revision:
        url += f"/revision/{quote(reference.revision, safe='')}"
    async with open_web(WebFile(url, headers), 0) as answer:
        try:
            found: Any = parse_json(await answer.read(LISTING_BYTES_MAX))
            names = [str(each["rfilename"]) for each in found["siblings"]]
        except (ValueError, LookupError, TypeError, ExchangeFailed) as error:
            raise PeerUnavailable(f"{options.hf_endpoint} gave an unusable list of {reference.place}.") from error
    models = sorted(name for name in names if name.lower().endswith(".gguf"))
    if len(models) == 1:
        return models[0]
    if not models:
        raise NotFound(f"{reference.place} has no .gguf file.", hint="Choose a repository with GGUF files.")
    shown = ", ".join(models[:10]) + (" …" if len(models) > 10 else "")
    raise InvalidInput(
        f"{reference.place} has {len(models)} models: {shown}", hint=f"Name one:  hf:{reference.place}/{models[0]}"
    )


@dataclass(frozen=True, slots=True)
class ArrivingFile:
    """Implements `ports.IncomingFile`."""

    host: str
    name: str
    answer: Streaming
    size_bytes: int | None
    offset: int
    validator: str
    promised: Digest | None
    skip_bytes: int = 0
    """How much of the response is here already: a server without ranges sends everything again."""

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.answer.status == 416:  # There is no more; the cache checks whether that is enough.
            return
        skip = self.skip_bytes
        try:
            async for chunk in self.answer.chunks():
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(skip - len(chunk), 0)
        except (OSError, ExchangeFailed) as error:
            raise PeerUnavailable(f"{self.host} did not send all of {self.name} ({reason_of(error)}).") from error


@asynccontextmanager
async def open_file(
    reference: ModelReference, options: ModelSourceOptions, *, offset: int = 0, validator: str | None = None
) -> AsyncIterator[ArrivingFile]:
    """The file from this offset on. With a validator (an empty one too) a server that sends the whole is believed to
    have another version; without one what comes is the same, and the part that is here already is skipped."""
    if reference.scheme not in WEB_SCHEMES:
        raise InvalidInput(
            f"{reference.text[:200]} is not a file of the web.", hint="Write an https:// address, hf: or s3:// ."
        )
    source = await web_file(reference, options)
    async with open_web(source, offset, validator=validator or "") as answer:
        yield _arriving(source, answer, offset, is_same=validator is None)


def _arriving(source: WebFile, answer: Streaming, offset: int, *, is_same: bool) -> ArrivingFile:
    parts = _split(source.url)
    host, name = parts.netloc, unquote(parts.path).rpartition("/")[2] or "model.gguf"
    if answer.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        raise PeerUnavailable(
            f"{host} answered with a web page instead of {name}; a proxy or a login page may be in between."
        )
    length = answer.headers.get("content-length", "")
    count = int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None
    begins = 0 if answer.status == 200 else offset
    size = None if count is None else begins + count
    if answer.status == 416:
        size = offset
        if not is_same and answer.headers.get("content-range", "").rpartition("/")[2] != str(offset):
            raise InvalidInput(f"{host} has less of {name} than was fetched before.")
    etag = answer.headers.get("etag", "")
    return ArrivingFile(
        host=host,
        name=name if name.isprintable() and len(name) <= NAME_LENGTH_MAX else "model.gguf",
        answer=answer,
        size_bytes=size,
        offset=offset if is_same else begins,
        validator="" if etag.startswith("W/") else etag[:ETAG_LENGTH_MAX],
        promised=source.promised,
        skip_bytes=offset - begins if is_same else 0,
    )


@asynccontextmanager
async def open_web(file: WebFile, offset: int, *, validator: str = "") -> AsyncIterator[Streaming]:
    """The answer to a GET from this offset, redirects followed. Raises NotFound, Refused, PeerUnavailable.

    With a `validator` (an ETag), content that has changed in between is sent from its beginning: status 200.
    """
    url, start = file.url, _split(file.url)
    first = start.netloc
    ranged = {"Range": f"bytes={offset}-"} if offset else {}
    if offset and validator:
        ranged["If-Range"] = validator
    for _ in range(REDIRECTS_MAX + 1):
        parts = _split(url)
        _require_safe(parts, start)
        context = await run_sync(ssl.create_default_context) if parts.scheme == "https" else None
        address = route_to(parts, lambda context=context: context or ssl.create_default_context())  # type: ignore[misc]
        target, extra = target_of(parts, address)
        own = file.headers if parts.netloc == first else {}
        headers = {"User-Agent": "homeport", "Accept-Encoding": "identity", **ranged, **own, **extra}
        try:
            async with stream(address, "GET", target, headers=headers, silence_seconds=SILENCE_SECONDS) as answer:
                if parts.netloc == first:
                    file.promised = _linked(answer.headers.get(LINKED_ETAG, "")) or file.promised
                if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                    url = _joined(url, answer.headers["location"])
                    continue
                if answer.status != 416 or not offset:
                    _require_success(answer, first, parts.path)
                yield answer
                return
        except (OSError, ExchangeFailed) as error:
            raise PeerUnavailable(f"{parts.netloc} cannot be reached ({reason_of(error)}).") from error
    raise PeerUnavailable(f"{first} redirects without end.")


def _split(url: str) -> SplitResult:
    """Raises Refused for what is not an address, whatever it came from."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Refused(f"{url[:200]!r} is not an address: {error}.") from error
    return parts


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise Refused(f"{location[:200]!r} is not an address: {error}.") from error


def _require_safe(parts: SplitResult, first: SplitResult) -> None:
    """A server on the internet must not lead us to what only this machine, or its network, can reach."""
    host, start = parts.hostname or "", first.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host) and is_loopback(start)):
        raise Refused(f"{first.netloc} sends us to {parts.netloc}, which has no TLS.")
    if is_private(host) and not is_private(start):
        raise Refused(f"{first.netloc} sends us to {parts.netloc}, which is not on the internet.")


def _linked(etag: str) -> Digest | None:
    digits = etag.strip('"')
    return Digest(f"sha256:{digits}") if DIGEST.fullmatch(f"sha256:{digits}") else None


def _require_success(answer: Streaming, host: str, path: str) -> None:
    status = answer.status
    if status in (200, 206):
        return
    if status == 404:
        raise NotFound(f"{host} has no {path}.")
    if status in (401, 403):
        raise Refused(
            f"{host} does not let us read {path} (HTTP {status}).",
            hint="Where the site runs, set HF_TOKEN for Hugging Face, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "for S3; or use a presigned https:// address.",
        )
    error = PeerUnavailable(f"{host} cannot send {path} now (HTTP {status}).")
    if (seconds := small_number(answer.headers.get("retry-after", ""))) is not None:
        error.retry_after_seconds = float(seconds)
    raise error
