"""A fleet manager that does what a test tells it, over real mutual TLS: it can lie, refuse, stall and cut off."""

import gzip
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from starlette.types import Receive, Scope, Send

from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.margo.bundle import pack
from homeport.core.margo.manifest import (
    MANIFEST_TYPE,
    Manifest,
    ManifestDeployment,
    bundle_url,
    deployment_url,
    digest_of,
    etag_of,
    render,
)
from homeport.core.margo.problems import problem
from homeport.margo.validation import CAPABILITIES, STATUS, violations
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server
from homeport.vocabulary import DeploymentId
from tests.support.certificates import Made, forge, forge_root, write_files

DOMAIN, WFM = "plant.example", "hq"

DEPLOYMENT = """\
id: {deployment_id}
metadata:
  name: {name}
  namespace: test
  deviceId: {device}
spec:
  applicationId: test-app
  deploymentProfile:
    type: compose
    components:
      - name: web
        properties:
          repository: oci://127.0.0.1:5000/web
          revision: "{revision}"
          wait: true
      - name: cache
        properties:
          repository: oci://127.0.0.1:5000/cache
          revision: "1.0.0"
{more}  parameters:
    unknown-to-the-device:
      value: 5
      targets:
        - pointer: GREETING
          components: [web]
  x-acme-extensions:
    anything: [1, 2]
"""


def deployment_id(number: int) -> DeploymentId:
    return DeploymentId(f"3b0a2f1e-6d0c-4f0a-9c51-{number:012d}")


def deployment(
    number: int = 1, *, device: str = "north", revision: str = "1.0.0", name: str = "", more: str = ""
) -> bytes:
    return DEPLOYMENT.format(
        deployment_id=deployment_id(number),
        name=name or f"app-{number}",
        device=device,
        revision=revision,
        more=more,
    ).encode()


@dataclass
class Heard:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class MockWfm:
    version: int = 1
    files: dict[DeploymentId, bytes] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)
    """Overrides the bytes at a path."""
    failing: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    """Status and headers for paths that begin so."""
    hints: dict[str, Any] = field(default_factory=dict)
    """Members of the problem documents of what fails, instead of the usual ones."""
    manifest_body: bytes | None = None
    etag: str | None = None
    knows_conditions: bool = True
    compresses: bool = False
    """Bodies come with Content-Encoding: gzip; digests are of what is in them."""
    stalls: bool = False
    trickling: str = "nothing"
    """Bodies at paths that begin so come in ten parts, half a second apart."""
    media_type: str = MANIFEST_TYPE
    wrong_bodies: list[str] = field(default_factory=list)
    """What is wrong with bodies that the client has sent, by the schemas of the contract."""
    cuts: bool = False
    heard: list[Heard] = field(default_factory=list)
    certificates: list[bytes] = field(default_factory=list)
    """Of the client, one for each connection (DER)."""
    url: str = ""

    def want(self, *contents: bytes) -> None:
        """A new manifest with these deployments."""
        self.version += 1
        self.files = {}
        for content in contents:
            key = content.decode().splitlines()[0].removeprefix("id: ")
            self.files[DeploymentId(key)] = content

    def manifest(self) -> bytes:
        if self.manifest_body is not None:
            return self.manifest_body
        listed = tuple(
            ManifestDeployment(key, digest_of(content), len(content)) for key, content in self.files.items()
        )
        bundle = pack(self.files) if self.files else None
        return render(Manifest(self.version, listed, None if bundle is None else digest_of(bundle)))

    def statuses(self, key: DeploymentId) -> list[dict[str, Any]]:
        path = f"/api/v1/deployments/{key}/status"
        return [each.body for each in self.heard if each.path == path]

    def states(self, key: DeploymentId) -> list[str]:
        return [each["status"]["state"] for each in self.statuses(key)]

    def paths(self, method: str) -> list[str]:
        return [each.path for each in self.heard if each.method == method]

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = b""
        while True:
            message = await receive()
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"].removeprefix("/base")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.heard.append(Heard(scope["method"], path, headers, json.loads(content) if content else None))
        self._look_at(scope["method"], path, self.heard[-1].body)
        if self.stalls:
            await anyio.sleep_forever()
        status, more, body = self._answer(scope["method"], path, headers)
        if self.compresses and body and "gzip" in headers.get("accept-encoding", ""):
            more, body = {**more, "content-encoding": "gzip"}, gzip.compress(body)
        given = [(name.encode(), value.encode()) for name, value in more.items()]
        length = len(body) + (100 if self.cuts and body else 0)
        given.append((b"content-length", str(length).encode()))
        await send({"type": "http.response.start", "status": status, "headers": given})
        if self.cuts and body:
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            raise ConnectionResetError("cut off")
        size = len(body) // 10 + 1 if path.startswith(self.trickling) else max(1, len(body))
        for at in range(size, len(body), size):
            await send({"type": "http.response.body", "body": body[at - size : at], "more_body": True})
            await anyio.sleep(0.5)
        await send({"type": "http.response.body", "body": body[(len(body) - 1) // size * size :] if body else b""})

    def _look_at(self, method: str, path: str, body: Any) -> None:
        schema = {"PUT": CAPABILITIES, "POST": STATUS}.get(method)
        if schema is not None:
            self.wrong_bodies += [
                f"{method} {path} {each.field}: {each.message}" for each in violations(body, schema)
            ]
        if method == "POST":
            # Whole, although a fleet manager has to take less.
            errors = [each["error"] for each in (body["status"], *body["components"]) if "error" in each]
            self.wrong_bodies += [f"{path} {each}" for each in errors if each.keys() != {"code", "source", "message"}]

    def _answer(  # noqa: PLR0911 - one for each path
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        for begin, (status, more) in self.failing.items():
            if path.startswith(begin) and status < 400:
                return status, more, b""
            if path.startswith(begin):
                found = problem(status if status != 403 else "not-authorized", "as the test wants it") | self.hints
                return status, {"content-type": "application/problem+json", **more}, json.dumps(found).encode()
        if path in self.served:
            return 200, {}, self.served[path]
        if method != "GET":
            return 200, {}, b"{}"
        if path == "/api/v1/deployments":
            body = self.manifest()
            etag = etag_of(digest_of(body)) if self.etag is None else self.etag
            tag = {"etag": etag} if etag else {}
            if self.knows_conditions and headers.get("if-none-match") == etag:
                return 304, tag, b""
            return 200, {**tag, "content-type": self.media_type}, body
        for key, content in self.files.items():
            if path == deployment_url(key, digest_of(content)):
                return 200, {"content-type": "application/yaml"}, content
        if self.files and path == bundle_url(digest_of(pack(self.files))):
            return 200, {}, pack(self.files)
        return 404, {}, b"{}"


@dataclass
class MockRealm:
    """The authority of the mock and of its clients: one that is not ours."""

    folder: Path

    def __post_init__(self) -> None:
        self.root = forge_root(DOMAIN)

    def issue(self, machine: str, spiffe_id: str) -> Path:
        """With the address that it is reached at, which makes nobody the right one."""
        leaf = forge(self.root, uris=[spiffe_id], addresses=["127.0.0.1"], name=machine)
        return write_files(self.folder / machine, leaf, anchors=[self.root])

    def client(self, name: str) -> Path:
        return self.issue(name, spiffe.client_id(DOMAIN, WFM, name))

    def server(self, spiffe_id: str = spiffe.central_id(DOMAIN, WFM)) -> Credentials:
        folder = self.issue("wfm-" + spiffe_id.rpartition("/")[2], spiffe_id)
        return Credentials(folder, domain=DOMAIN, wfm=spiffe_id.split("/")[5])

    def showing(self, chain: Sequence[Made]) -> ssl.SSLContext:
        leaf, *above = chain
        folder = write_files(self.folder / "shown", leaf, above=above, anchors=[self.root])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "svid-cert.pem", folder / "svid-key.pem")
        context.load_verify_locations(folder / "svid-ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@asynccontextmanager
async def running_mock(
    realm: MockRealm,
    wfm: MockWfm | None = None,
    *,
    server_id: str = spiffe.central_id(DOMAIN, WFM),
    port: int = 0,
    chain: Sequence[Made] = (),
) -> AsyncIterator[MockWfm]:
    """`chain` is a certificate with those above it, however wrong, in the place of a right one."""
    mock = wfm or MockWfm()
    listener = bind("127.0.0.1", port)
    context = realm.showing(chain) if chain else realm.server(server_id).server_context("required")

    def shown(connection: ssl.SSLObject) -> None:
        certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None
        if mock.certificates[-1:] != [certificate]:
            mock.certificates.append(certificate)

    async with http_server(mock.app, [listener], Stopping(), context, shown, limits=Limits()):
        mock.url = f"https://127.0.0.1:{listener.getsockname()[1]}/base"
        yield mock
