"""As much of a Kubernetes API server as helm needs to keep releases and to apply simple objects. In memory.

It stores whatever it is sent, under the path it was sent to; nothing ever runs, so nobody may wait for a workload.
"""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

RESOURCES = [
    {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list", "create", "patch"]}
    for name, kind in (("secrets", "Secret"), ("configmaps", "ConfigMap"), ("pods", "Pod"))
]
LISTS = {"secrets": "SecretList", "configmaps": "ConfigMapList", "pods": "PodList"}
PROTOBUF = b"k8s\0"
"""Begins an object in Kubernetes' other format, in which helm writes its releases."""
DISCOVERY: dict[str, Any] = {
    "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": RESOURCES},
}


class Cluster:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        """By path."""
        self.kubeconfig = Path()

    def named(self, kind: str) -> dict[str, dict[str, Any]]:
        return {path.rpartition("/")[2]: value for path, value in self.objects.items() if f"/{kind}/" in path}


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = self._place()
            if path == "/openapi/v2":
                # A document that describes nothing: then nothing is validated.
                self._send(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            elif path in DISCOVERY:
                self._answer(200, DISCOVERY[path])
            elif path in cluster.objects:
                self._answer(200, cluster.objects[path])
            elif path.rpartition("/")[2] in LISTS:
                wanted = dict(pair.split("=") for pair in query.get("labelSelector", [""])[0].split(",") if pair)
                found = [value for key, value in cluster.objects.items() if key.startswith(f"{path}/")]
                items = [
                    value for value in found if wanted.items() <= (value["metadata"].get("labels") or {}).items()
                ]
                self._answer(
                    200, {"kind": LISTS[path.rpartition("/")[2]], "apiVersion": "v1", "metadata": {}, "items": items}
                )
            else:
                self._absent(path)

        def do_POST(self) -> None:
            path, _ = self._place()
            value = self._body()
            cluster.objects[f"{path}/{value['metadata']['name']}"] = value
            self._answer(201, value)

        def do_PUT(self) -> None:
            path, _ = self._place()
            cluster.objects[path] = self._body()
            self._answer(200, cluster.objects[path])

        def do_PATCH(self) -> None:
            path, _ = self._place()
            cluster.objects[path] = _merged(cluster.objects[path], self._body())
            self._answer(200, cluster.objects[path])

        def do_DELETE(self) -> None:
            path, _ = self._place()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if cluster.objects.pop(path, None) is None:
                self._absent(path)
            else:
                self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def _place(self) -> tuple[str, dict[str, list[str]]]:
            parts = urlsplit(self.path)
            return parts.path.rstrip("/"), parse_qs(parts.query)

        def _body(self) -> dict[str, Any]:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if content.startswith(PROTOBUF):
                return _secret(content)
            found: dict[str, Any] = json.loads(content) if content.strip().startswith(b"{") else {}
            return found

        def _absent(self, path: str) -> None:
            name = path.rpartition("/")[2]
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self._answer(404, {**body, "message": f'"{name}" not found', "details": {"name": name}})

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            self._send(status, json.dumps(value).encode(), "application/json")

        def _send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        cluster.kubeconfig = folder / "kubeconfig"
        cluster.kubeconfig.write_text(_kubeconfig(server.server_address[1]))
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def _secret(content: bytes) -> dict[str, Any]:
    """A Secret out of its binary form: the numbers are those of Kubernetes' published .proto files."""
    raw = dict(_fields(content.removeprefix(PROTOBUF)))[2]
    parts = list(_fields(raw))
    metadata = list(_fields(dict(parts)[1]))
    labels = [dict(_fields(value)) for number, value in metadata if number == 11]
    data = [dict(_fields(value)) for number, value in parts if number == 2]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": dict(parts)[3].decode(),
        "metadata": {
            "name": dict(metadata)[1].decode(),
            "labels": {pair[1].decode(): pair[2].decode() for pair in labels},
        },
        "data": {pair[1].decode(): base64.b64encode(pair[2]).decode() for pair in data},
    }


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length; numbers are passed over."""
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(content):
        key = number()
        if key & 7 == 0:
            number()
        else:
            length = number()
            yield key >> 3, content[position : position + length]
            position += length


def _merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "apps"}}],
            "current-context": "x",
        }
    )
