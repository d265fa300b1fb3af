"""What `homeport models` does on this machine: finding a model's file, hashing it, sending it to a registry."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import click

from homeport.adapters.files.paths import exists, written_path
from homeport.adapters.registry.large_files import push_file
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.cli.api.client import Client, Json
from homeport.cli.api.finding import suggestion
from homeport.cli.local.places import ComponentRegistry, built_in_place, own_registry, registry_client
from homeport.cli.options import Settings
from homeport.cli.terminal.safe_text import moving
from homeport.core.inference.models.references import (
    EXAMPLES,
    MODEL_ID,
    ModelReference,
    Scheme,
    check_digest,
    default_model_id,
    parse_reference,
)
from homeport.core.values.addresses import is_loopback
from homeport.errors import Conflict, InvalidInput, NotFound
from homeport.lazy_dataclass import dataclass
from homeport.models.store.fetching import LocalModel, ModelFetcher, digest_of_file, model_file
from homeport.models.store.gguf import refuse_damaged
from homeport.models.store.index import ModelIndex
from homeport.vocabulary import Digest

REFRESH_SECONDS = 0.1
PULL_POLL_SECONDS = 0.5
PREFIX = "models"
SIGNATURE_BYTES_MAX = 2048


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model as nodes will fetch it."""

    reference: str
    digest: str
    size_bytes: int
    model_id: str


class Bar:
    """One line with a bar on a terminal; one line at the end elsewhere."""

    def __init__(self, settings: Settings, what: str) -> None:
        self._is_quiet = settings.is_data
        self._is_live = sys.stderr.isatty() and not self._is_quiet
        self._what, self._shown_at = what, 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        is_end = bool(total) and done >= total
        if not self._is_live or (now - self._shown_at < REFRESH_SECONDS and not is_end):
            return
        self._shown_at = now
        share = done / total if total else 0.0
        filled = "█" * int(share * 24)
        self._draw(f"\r{self._what}  {filled:<24}  {amount(done)} / {amount(total)} ")

    def close(self) -> None:
        if self._is_live:
            self._draw("\r\033[K")

    def _draw(self, text: str) -> None:
        click.echo(text, nl=False, file=moving(sys.stderr))


def amount(size: int) -> str:
    for unit, width in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= width:
            return f"{size / width:.1f} {unit}"
    return f"{size} B"


def store_of_this_user() -> ModelFetcher:
    """`~/.cache/models`, as other tools for models have it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "models"
    options = ModelSourceOptions.from_environment(os.environ)
    return ModelFetcher(ModelIndex(base), registry_client(None), options, now_ms=lambda: int(time.time() * 1000))


def pull(text: str, digest: str, on_bytes: Callable[[int, int], None], client: Client | None = None) -> LocalModel:
    """Into this user's store."""
    fetcher = store_of_this_user()
    reference = parse_reference(text)
    if client is not None and reference.scheme is Scheme.OCI:
        place = own_registry(client, reference.place.partition("/")[0])
        options = ModelSourceOptions.from_environment(os.environ)
        index = ModelIndex(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "models")
        fetcher = ModelFetcher(index, registry_client(place), options, now_ms=lambda: int(time.time() * 1000))

    async def run() -> LocalModel:
        return await fetcher.fetch(text, digest=digest, on_bytes=on_bytes)

    return anyio.run(run)


def pull_to_central(settings: Settings, client: Client, model_id: str) -> Json:
    """Asks central to fetch a model of its catalog, and waits. Raises Conflict where that fails."""
    path = f"/v2/catalog/models/{model_id}"
    found: Json = client.post(f"{path}/pull", {})
    bar = Bar(settings, f"fetching {model_id}")
    try:
        while found["pull"]["state"] in {"waiting", "pulling"}:
            bar(found["pull"]["done_bytes"], found["pull"]["total_bytes"])
            time.sleep(PULL_POLL_SECONDS)
            found = client.get(path)
            if found["pull"] is None:
                raise Conflict(
                    "Central was restarted meanwhile.", hint="Run the command again: it resumes where it stopped."
                )
    finally:
        bar.close()
    if found["pull"]["state"] == "failed":
        raise Conflict(found["pull"]["problem"])
    return found


def source_for(
    settings: Settings, client: Client, text: str, *, site: str, digest: str, model_id: str, push: bool
) -> ModelSource:
    """A file of this machine is used where it lies when the nodes are on this machine; otherwise it is sent to the
    built-in registry, where every site finds it. Everything else nodes fetch themselves."""
    reference = parse_reference(text)
    if digest:
        check_digest(digest)
    name = model_id or default_model_id(reference)
    if reference.scheme is not Scheme.FILE:
        return ModelSource(reference.text, digest, 0, name)
    path = model_file(Path(reference.path))
    refuse_damaged(path)
    name = model_id or default_model_id(parse_reference(str(path)))
    found = digest_of_file(path)
    if digest and found != digest:
        raise Conflict(f"{path} does not match its digest: found {found}, expected {digest}.")
    size = path.stat().st_size
    if not push and nodes_are_here(client, site):
        return ModelSource(f"file:{path}", found, size, name)
    reference_text = push_model(settings, client, path, name, found)
    return ModelSource(reference_text, found, size, name)


def push_model(settings: Settings, client: Client, path: Path, name: str, digest: str) -> str:
    """Returns the reference. The tag is the content's, so that a changed file is another version."""
    place = registry_place(client)
    repository, tag = f"oci://{place.host}/{PREFIX}/{name.lower()}", digest.removeprefix("sha256:")[:12]
    bar, size = Bar(settings, f"pushing {path.name}"), path.stat().st_size

    async def run() -> None:
        registry = registry_client(place)
        await push_file(registry, repository, tag, path, digest=Digest(digest), size=size, on_bytes=bar)

    try:
        anyio.run(run)
    finally:
        bar.close()
    return f"{repository}:{tag}"


def registry_place(client: Client) -> ComponentRegistry:
    try:
        found = client.get("/api/v1/registry")
    except NotFound:
        found = {}
    if not found.get("host"):
        raise Conflict(
            found.get("why") or "This server has no built-in registry.",
            hint="Put the model where nodes can fetch it, and use its https:// or oci:// address.",
        )
    return built_in_place(client, found)


def nodes_are_here(client: Client, site: str) -> bool:
    """Whether every node of the site is this machine: then a path means the same file there."""
    if not is_loopback(client.host):
        return False
    nodes = client.pages("/api/v1/nodes", "nodes", site=site or None)["nodes"]
    return bool(nodes) and all(node.get("hostname") == socket.gethostname() for node in nodes)


def refuse_unknown_name(client: Client, ref: str) -> None:
    """A word that is neither in the catalog nor a file. Raises NotFound."""
    if MODEL_ID.fullmatch(ref) and ":" not in ref and not exists(written_path(ref)):
        known = [str(each["id"]) for each in client.get("/v2/catalog/models")["models"]]
        raise NotFound(
            f'There is no model "{ref}" in the catalog, and no file of that name here.{suggestion(ref, known)}',
            hint=f"List them:  homeport models list   {EXAMPLES}",
        )


def absolute(text: str) -> str:
    """A path of a person's own becomes one that means the same elsewhere on this machine."""
    reference: ModelReference = parse_reference(text)
    if reference.scheme is Scheme.FILE:
        return f"file:{written_path(reference.path).absolute()}"
    return reference.text


def read_signature(path: Path) -> str:
    """As  cosign sign-blob  prints it: one line of base64. Raises InvalidInput."""
    with path.open("rb") as file:
        content = file.read(SIGNATURE_BYTES_MAX + 1)
    text = content.decode("ascii", "replace").strip()
    if not text or len(content) > SIGNATURE_BYTES_MAX or not re.fullmatch(r"[A-Za-z0-9+/]+=*", text):
        raise InvalidInput(
            f"{path} is not a signature in base64.", hint="Make one:  cosign sign-blob --key cosign.key MODEL > FILE"
        )
    return text


def catalog_body(source: ModelSource, tags: tuple[str, ...]) -> Json:
    return {
        "id": source.model_id,
        "digest": source.digest,
        "source_url": source.reference,
        "size_bytes": source.size_bytes,
        "tags": list(tags),
    }
