"""A running central with its Margo port, and clients of other vendors with certificates of their own."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from jsonschema import Draft202012Validator, FormatChecker

from homeport.adapters.identity.contexts import bare_client, show_chain
from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.central.app import CentralApp
from homeport.cli.local.issuing import anchors_pem
from homeport.core.margo.manifest import canonical, digest_of
from homeport.core.model.caller import INTERNAL
from tests.support.running_central import Client, running_central, write_app
from tests.support.vectors import load_json
from tests.support.waiting import eventually

DEVICE: Mapping[str, Any] = {
    "properties": {
        "id": "press-1",
        "vendor": "Acme",
        "modelNumber": "P4",
        "serialNumber": "0042",
        "cpus": [{"cores": 4, "architecture": "amd64"}],
        "memory": "8 Gi",
        "storage": "64Gi",
        "peripherals": [{"type": "camera", "manufacturer": "Acme"}],
        "interfaces": [{"type": "ethernet"}],
        "otelCollector": True,
        "supportedRuntimes": ["oci"],
        "supportedDeploymentTypes": ["compose"],
    },
    "labels": {"line": 7},
}


def device(device_id: str, **properties: Any) -> dict[str, Any]:
    return {**DEVICE, "properties": {**DEVICE["properties"], "id": device_id, **properties}}


def gateway(device_id: str) -> dict[str, Any]:
    """One that hosts nothing."""
    names = ("vendor", "modelNumber", "serialNumber")
    return {"properties": {"id": device_id, **{name: DEVICE["properties"][name] for name in names}}}


def status(
    deployment_id: str,
    version: int,
    state: str = "installed",
    *,
    names: tuple[str, ...] = ("web", "cache"),
    **rest: Any,
) -> dict[str, Any]:
    return {
        "deploymentId": deployment_id,
        "adoptedManifestVersion": version,
        "status": {"state": state},
        "components": [{"name": name, "state": state} for name in names],
        **rest,
    }


def assert_valid(value: Any, schema: str) -> None:
    """Against one of the schemas beside the vectors."""
    Draft202012Validator(load_json(f"{schema}.schema"), format_checker=FormatChecker()).validate(value)


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The name of its registered problem type. The document has to be as the contract says, hints included."""
        assert self.headers["content-type"] == "application/problem+json"
        assert_valid(self.json, "problem-detail")
        retry = self.status in (429, 500, 503)
        assert self.json["status"] == self.status and self.json["retryable"] is retry
        assert self.json["backoffStrategy"] == ("exponential" if retry else "none")
        assert ("retry-after" in self.headers) is retry
        return str(self.json["type"]).rpartition("#")[2]


@dataclass
class MargoClient:
    """Another vendor's client, as a plain HTTP client with a certificate."""

    name: str
    url: str
    session: aiohttp.ClientSession

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        headers = {"Accept": None, **options.pop("headers", {})}
        given = {key: value for key, value in headers.items() if value is not None}
        skip = [key for key, value in headers.items() if value is None]
        async with self.session.request(
            method, self.url + path, headers=given, skip_auto_headers=skip, **options
        ) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def manifest(self, **headers: str) -> Reply:
        """Each that comes is looked at as a whole."""
        reply = await self.call("GET", "/api/v1/deployments", headers=headers)
        if reply.status == 200:
            assert_valid(reply.json, "state-manifest")
            assert reply.headers["etag"] == f'"{digest_of(reply.body)}"'
            assert reply.body == canonical(reply.json)
        return reply

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, headers=headers)

    async def put_device(self, body: Mapping[str, Any], path: str | None = None) -> Reply:
        return await self.call("PUT", f"/api/v1/capabilities/{path or body['properties']['id']}", json=body)

    async def report(self, deployment_id: str, body: Any) -> Reply:
        return await self.call("POST", f"/api/v1/deployments/{deployment_id}/status", json=body)

    async def listed(self, count: int) -> dict[str, Any]:
        """The manifest, as soon as it lists so many deployments."""
        found: dict[str, Any] = {}

        async def has_them() -> bool:
            found.update((await self.manifest()).json)
            return len(found["deployments"]) == count

        await eventually(has_them, what=f"a manifest with {count} deployments")
        return found


@dataclass
class WfmStand:
    central: CentralApp
    api: Client
    folder: Path
    base: str = ""
    contexts: dict[str, ssl.SSLContext] = field(default_factory=dict)
    issued: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """The certificates and the key of each client."""

    @property
    def url(self) -> str:
        address = self.central.parts.margo.address
        assert address is not None, self.central.parts.margo.why_off
        return f"https://127.0.0.1:{address[1]}{self.base}"

    async def context(self, name: str) -> ssl.SSLContext:
        """With a certificate that central has issued for this client."""
        if name not in self.contexts:
            key = new_key()
            grant = await self.central.parts.registrar.issue(name, make_csr(key, name), INTERNAL)
            context = bare_client()
            context.load_verify_locations(cadata=anchors_pem(self.central.parts.identity.authority.bundle()).decode())
            show_chain(context, grant.svid.chain, key_pem(key))
            self.issued[name] = (grant.svid.chain, key_pem(key))
            self.contexts[name] = context
        return self.contexts[name]

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[MargoClient]:
        """Keeps its connection until the server closes it, however long a busy machine lets it wait."""
        connector = aiohttp.TCPConnector(ssl=await self.context(name), keepalive_timeout=3600.0)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield MargoClient(name, self.url, session)

    async def deploy(self, *sites: str, **body: Any) -> list[str]:
        answer = await self.api.deploy(*sites, **body)
        assert answer.status in (200, 201, 202), answer.body
        return list(answer.body["deployment_ids"])


async def is_site(wfm: WfmStand, name: str) -> None:
    """Waits until a client that has asked is shown as a site."""

    async def there() -> bool:
        return (await wfm.api.get(f"/api/v1/sites/{name}")).status == 200

    await eventually(there, what=f"{name} to be a site")


@asynccontextmanager
async def running_wfm(folder: Path, *, base: str = "", **settings: Any) -> AsyncIterator[WfmStand]:
    apps = folder / "apps"
    for version in ("1.0.0", "1.1.0"):
        write_app(apps, version=version)
    given = {"margo_address": ("127.0.0.1", 0), "margo_base": base, "margo_is_required": True, **settings}
    async with running_central(folder / "central", **given) as (central, api):
        added = await api.post("/api/v1/apps", {"repository": str(apps)})
        assert added.status in (200, 201), added.body
        yield WfmStand(central, api, folder, base)
