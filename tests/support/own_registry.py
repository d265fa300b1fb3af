"""The built-in registry on a socket, served by a central in a thread; and the smallest of HTTP clients for it."""

import base64
import contextlib
import hashlib
import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from anyio.from_thread import BlockingPortal, start_blocking_portal

from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def basic(password: str, user: str = "anybody") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the specification's envelope."""
        [error] = self.json["errors"]
        assert error["message"]
        return str(error["code"])


@dataclass
class Raw:
    """Speaks to a registry as the specification writes it, byte for byte."""

    host: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """`content_type="…"` is sent as `Content-Type`."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {**self.headers, **given})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())
        finally:
            connection.close()

    def push_blob(self, name: str, content: bytes) -> str:
        digest = digest_of(content)
        begun = self.call("POST", f"/v2/{name}/blobs/uploads/", b"")
        assert begun.status == 202, begun
        location = begun.headers["location"]
        target = location[location.index("/v2/") :]
        target += f"{'&' if '?' in target else '?'}digest={digest}"
        done = self.call("PUT", target, content, content_type="application/octet-stream")
        assert done.status == 201, done
        return digest

    def push(self, name: str, reference: str, manifest: Mapping[str, Any]) -> Reply:
        content = json.dumps(manifest).encode()
        return self.call("PUT", f"/v2/{name}/manifests/{reference}", content, content_type=manifest["mediaType"])

    def push_image(self, name: str, tag: str, layer: bytes = b"layer", **more: Any) -> str:
        manifest = self.image(name, layer, **more)
        pushed = self.push(name, tag, manifest)
        assert pushed.status == 201, pushed
        return digest_of(json.dumps(manifest).encode())

    def image(self, name: str, layer: bytes, **more: Any) -> dict[str, Any]:
        """A manifest whose blobs are there."""
        return {
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "config": self.descriptor(name, b"{}", "application/vnd.oci.image.config.v1+json"),
            "layers": [self.descriptor(name, layer, "application/vnd.oci.image.layer.v1.tar")],
            **more,
        }

    def descriptor(self, name: str, content: bytes, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": self.push_blob(name, content), "size": len(content)}


@dataclass
class OwnRegistry:
    host: str
    central: CentralApp
    portal: BlockingPortal
    folder: Path
    """Where it keeps everything."""

    @property
    def local_key(self) -> str:
        return self.central.parts.local.person

    def client(self, password: str | None = None) -> Raw:
        """As the user who started it, or with a password; an empty one is nobody."""
        return Raw(self.host, {} if password == "" else basic(password or self.local_key))


def fresh_name() -> str:
    return f"suite/{uuid4().hex[:12]}"


@contextlib.contextmanager
def own_registry(data: Path, **settings: Any) -> Iterator[OwnRegistry]:
    """Settings are those of central."""
    given: dict[str, Any] = {
        "http_address": ("127.0.0.1", 0),
        "grpc_address": None,
        "access_folder": None,
        "registry_address": ("127.0.0.1", 0),
        **settings,
    }
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_central(CentralSettings(data=data, **given))) as central,
    ):
        address = central.parts.registry.address
        assert address is not None
        yield OwnRegistry(address.host, central, portal, data / "registry")
