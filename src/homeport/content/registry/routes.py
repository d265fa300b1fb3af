"""The paths of the Distribution specification, each with its row in the access table, and their responses.

Every authenticated caller may pull what it can name: users with any role, and machines. Listing all repositories is
for users of the whole fleet, pushing and deleting for its operators, like adding an app.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import urlencode

import anyio

from homeport.content.registry.errors import RegistryProblem, SpecCode
from homeport.content.registry.exchange import RegistryExchange
from homeport.content.registry.manifests import MANIFEST_BYTES_MAX, OCI_INDEX
from homeport.content.registry.names import check_digest
from homeport.content.registry.ranges import received, requested, uploaded
from homeport.content.registry.service import RegistryService, lexical
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller, CallerKind
from homeport.errors import OffsetMismatch
from homeport.ports import Upload, UploadId
from homeport.vocabulary import Digest

PAGE_MAX: Final = 1_000
"""How many tags or referrers one response lists; a link leads to the rest."""

_PULL: Final = Action("registry.pull", Level.KNOWN, Scope.NONE, Audit.NONE)
_LIST: Final = Action("registry.list", Level.VIEWER, Scope.FLEET, Audit.NONE)
"""Names reveal what others deploy: not for machines, which get orders to pull, nor for users of some sites."""
_UPLOAD: Final = Action("registry.upload", Level.OPERATOR, Scope.FLEET, Audit.NONE)
_PUSH: Final = Action("registry.push", Level.OPERATOR, Scope.FLEET, Audit.WAIT)
_DELETE: Final = Action("registry.delete", Level.OPERATOR, Scope.FLEET, Audit.WAIT)
_ROOT: Final = "/v2/"
_CATALOG: Final = "/v2/_catalog"
_MANIFEST: Final = "/v2/{name:path}/manifests/{reference}"
_BLOB: Final = "/v2/{name:path}/blobs/{digest}"
_UPLOADS: Final = "/v2/{name:path}/blobs/uploads/"
_ONE_UPLOAD: Final = "/v2/{name:path}/blobs/uploads/{upload}"
_TAGS: Final = "/v2/{name:path}/tags/list"
_REFERRERS: Final = "/v2/{name:path}/referrers/{digest}"

# fmt: off
ACTIONS: Final[Actions] = {
    # Every client begins here without credentials, to learn how to authenticate: that is not a refusal to be
    # recorded.
    ("GET", _ROOT): Action("registry.read", Level.OPEN, Scope.NONE, Audit.NONE),
    ("GET", _CATALOG): _LIST,
    ("GET", _ONE_UPLOAD): _UPLOAD,
    ("PATCH", _ONE_UPLOAD): _UPLOAD,
    ("PUT", _ONE_UPLOAD): _UPLOAD,
    ("DELETE", _ONE_UPLOAD): _UPLOAD,
    ("POST", _UPLOADS): _UPLOAD,
    ("GET", _MANIFEST): _PULL,
    ("PUT", _MANIFEST): _PUSH,
    ("DELETE", _MANIFEST): _DELETE,
    ("GET", _BLOB): _PULL,
    ("DELETE", _BLOB): _DELETE,
    ("GET", _TAGS): _PULL,
    ("GET", _REFERRERS): _PULL,
}
# fmt: on

Handler = Callable[[RegistryService, RegistryExchange], Awaitable[None]]


async def greet(registry: RegistryService, exchange: RegistryExchange) -> None:
    """Confirms to authenticated clients that this is a registry."""
    state = exchange.scope["state"]
    caller: Caller = state["caller"]
    if caller.kind is CallerKind.ANONYMOUS:
        state["recorded"] = True
        raise RegistryProblem(
            SpecCode.UNAUTHORIZED,
            "This registry needs a login: any user, and an access token as the password.",
            headers=CHALLENGE,
        )
    await exchange.answer_json({})


CHALLENGE: Final[Mapping[str, str]] = {"WWW-Authenticate": 'Basic realm="homeport"'}


# --- pull -----------------------------------------------------------------------------------------------------


async def get_manifest(registry: RegistryService, exchange: RegistryExchange) -> None:
    found = await registry.manifest(exchange.name, exchange.params["reference"])
    headers = {"Docker-Content-Digest": found.digest, "ETag": f'"{found.digest}"', "Content-Type": found.media_type}
    if _is_known(exchange, found.digest):
        await exchange.answer(304, headers)
        return
    await exchange.answer(200, headers, found.content)


async def get_blob(registry: RegistryService, exchange: RegistryExchange) -> None:
    digest = check_digest(exchange.params["digest"])
    headers = {
        "Docker-Content-Digest": digest,
        "ETag": f'"{digest}"',
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "Cache-Control": "max-age=31536000, immutable",
    }
    async with registry.open_blob(exchange.name, digest) as opened:
        if _is_known(exchange, digest):
            await exchange.answer(304, headers)
            return
        asked = exchange.headers.get("range") if _range_counts(exchange, digest) else None
        part = requested(asked, opened.size_bytes)
        if part is None:
            await exchange.answer_file(200, headers, opened.file, (0, opened.size_bytes))
            registry.traffic.pulled += opened.size_bytes
            return
        shown = f"bytes {part[0]}-{part[0] + part[1] - 1}/{opened.size_bytes}"
        await exchange.answer_file(206, {**headers, "Content-Range": shown}, opened.file, part)
        registry.traffic.pulled += part[1]


async def list_repositories(registry: RegistryService, exchange: RegistryExchange) -> None:
    """Not in the specification, but in every registry: `oras repo ls` and people with curl ask for it."""
    page, link = _page(exchange, {name: name for name in await registry.names()})
    await exchange.answer_json({"repositories": page}, link)


async def list_tags(registry: RegistryService, exchange: RegistryExchange) -> None:
    tags = await registry.tags(exchange.name)
    page, link = _page(exchange, {tag: tag for tag in tags})
    await exchange.answer_json({"name": exchange.name, "tags": page}, link)


async def list_referrers(registry: RegistryService, exchange: RegistryExchange) -> None:
    digest = check_digest(exchange.params["digest"])
    listed = await registry.referrers(exchange.name, digest)
    headers = {"Content-Type": OCI_INDEX}
    wanted = exchange.query.get("artifactType")
    if wanted is not None:
        listed = [each for each in listed if each.get("artifactType") == wanted]
        headers["OCI-Filters-Applied"] = "artifactType"
    page, link = _page(exchange, {str(each["digest"]): each for each in listed})
    await exchange.answer_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": page}, headers | link)


# --- push -----------------------------------------------------------------------------------------------------


async def begin_upload(registry: RegistryService, exchange: RegistryExchange) -> None:
    """Three kinds: mount a blob of another repository, upload a whole one at once, or start an upload in parts."""
    name, query = exchange.name, exchange.query
    if "mount" in query:
        digest = check_digest(query["mount"])
        if await registry.mount(name, digest, query.get("from") or None):
            await _created_blob(exchange, digest)
            return
    promised = check_digest(query["digest"]) if "digest" in query and "mount" not in query else None
    upload_id = await registry.begin(name)
    if promised is None:
        await _progress(exchange, 202, await registry.upload(name, upload_id))
        return
    try:
        await registry.append(name, upload_id, 0, exchange.chunks())
    except BaseException:
        await _forget(registry, name, upload_id)
        raise
    await registry.finish(name, upload_id, promised)
    await _created_blob(exchange, promised)


async def show_upload(registry: RegistryService, exchange: RegistryExchange) -> None:
    await _progress(exchange, 204, await registry.upload(exchange.name, _upload_id(exchange)))


async def append_part(registry: RegistryService, exchange: RegistryExchange) -> None:
    await _progress(exchange, 202, await _append(registry, exchange))


async def finish_upload(registry: RegistryService, exchange: RegistryExchange) -> None:
    if "digest" not in exchange.query:
        raise RegistryProblem(SpecCode.DIGEST_INVALID, "An upload ends with ?digest=…, which is missing.")
    digest = check_digest(exchange.query["digest"])
    await _append(registry, exchange)
    await registry.finish(exchange.name, _upload_id(exchange), digest)
    await _created_blob(exchange, digest)


async def cancel_upload(registry: RegistryService, exchange: RegistryExchange) -> None:
    await registry.cancel(exchange.name, _upload_id(exchange))
    await exchange.answer(204)


async def put_manifest(registry: RegistryService, exchange: RegistryExchange) -> None:
    name, reference = exchange.name, exchange.params["reference"]
    content = await exchange.body(MANIFEST_BYTES_MAX)
    pushed = await registry.put_manifest(name, reference, content, exchange.headers.get("content-type", ""))
    headers = {"Location": f"/v2/{name}/manifests/{pushed.digest}", "Docker-Content-Digest": pushed.digest}
    if pushed.subject is not None:
        headers["OCI-Subject"] = pushed.subject
    await exchange.answer(201, headers)


# --- delete ---------------------------------------------------------------------------------------------------


async def delete_manifest(registry: RegistryService, exchange: RegistryExchange) -> None:
    await registry.delete_manifest(exchange.name, exchange.params["reference"])
    await exchange.answer(202)


async def delete_blob(registry: RegistryService, exchange: RegistryExchange) -> None:
    await registry.delete_blob(exchange.name, check_digest(exchange.params["digest"]))
    await exchange.answer(202)


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", _ROOT): greet,
    ("GET", _CATALOG): list_repositories,
    ("GET", _ONE_UPLOAD): show_upload,
    ("PATCH", _ONE_UPLOAD): append_part,
    ("PUT", _ONE_UPLOAD): finish_upload,
    ("DELETE", _ONE_UPLOAD): cancel_upload,
    ("POST", _UPLOADS): begin_upload,
    ("GET", _MANIFEST): get_manifest,
    ("PUT", _MANIFEST): put_manifest,
    ("DELETE", _MANIFEST): delete_manifest,
    ("GET", _BLOB): get_blob,
    ("DELETE", _BLOB): delete_blob,
    ("GET", _TAGS): list_tags,
    ("GET", _REFERRERS): list_referrers,
}

Item = TypeVar("Item")


async def _append(registry: RegistryService, exchange: RegistryExchange) -> Upload:
    upload_id = _upload_id(exchange)
    offset = uploaded(exchange.headers.get("content-range"), exchange.length)
    try:
        return await registry.append(exchange.name, upload_id, offset, exchange.chunks())
    except RegistryProblem as problem:
        if isinstance(problem.__cause__, OffsetMismatch):
            problem.headers = {**problem.headers, "Location": _location(exchange.name, upload_id)}
        raise


async def _forget(registry: RegistryService, name: str, upload_id: UploadId) -> None:
    """A blob upload in one request that failed leaves nothing behind."""
    with anyio.CancelScope(shield=True), suppress(RegistryProblem):
        await registry.cancel(name, upload_id)


async def _progress(exchange: RegistryExchange, status: int, upload: Upload) -> None:
    await exchange.answer(
        status,
        {
            "Location": _location(exchange.name, upload.id),
            "Range": received(upload.size_bytes),
            "Docker-Upload-UUID": upload.id,
        },
    )


async def _created_blob(exchange: RegistryExchange, digest: Digest) -> None:
    headers = {"Location": f"/v2/{exchange.name}/blobs/{digest}", "Docker-Content-Digest": digest}
    await exchange.answer(201, headers)


def _location(name: str, upload_id: UploadId) -> str:
    return f"/v2/{name}/blobs/uploads/{upload_id}"


def _upload_id(exchange: RegistryExchange) -> UploadId:
    return UploadId(exchange.params["upload"])


def _is_known(exchange: RegistryExchange, digest: Digest) -> bool:
    known = exchange.headers.get("if-none-match", "")
    return any(
        each.strip().removeprefix("W/").strip('"') in (digest, "*") for each in known.split(",") if each.strip()
    )


def _range_counts(exchange: RegistryExchange, digest: Digest) -> bool:
    """With `If-Range`, a part is only sent where the whole is unchanged."""
    condition = exchange.headers.get("if-range")
    return condition is None or condition.strip().strip('"') == digest


def _page(exchange: RegistryExchange, items: Mapping[str, Item]) -> tuple[Sequence[Item], dict[str, str]]:
    """The page of named items that `n` and `last` request, in order, and the link to the
    next."""
    given, last = exchange.query.get("n"), exchange.query.get("last")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 10):
        raise RegistryProblem(SpecCode.UNSUPPORTED, f"n={given[:20]} is not a number of entries.", status=400)
    count = PAGE_MAX if given is None else min(int(given), PAGE_MAX)
    names = [name for name in items if last is None or lexical(name) > lexical(last)]
    page = names[:count]
    if not page or len(names) <= count:
        return [items[name] for name in page], {}
    kept = {name: value for name, value in exchange.query.items() if name not in {"n", "last"}}
    query = urlencode({**kept, "n": count, "last": page[-1]})
    return [items[name] for name in page], {"Link": f'<{exchange.scope["path"]}?{query}>; rel="next"'}
