"""What only a registry over HTTP can do: lie, redirect, ask for a password. A small server plays the part."""

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.transport import is_same_site
from homeport.errors import InvalidInput, PeerUnavailable, Refused, TooLarge
from homeport.ports import Artifact, Layer

pytestmark = pytest.mark.anyio

Reply = tuple[int, dict[str, str], bytes]
Asked = BaseHTTPRequestHandler


@contextlib.contextmanager
def server(reply: Callable[[Asked], Reply]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = reply(self)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


LAYER = b"the content of a layer"


def manifest(**changes: Any) -> bytes:
    layer = {"mediaType": "text/plain", "digest": digest(LAYER), "size": len(LAYER)} | changes
    return json.dumps({"schemaVersion": 2, "artifactType": "a/b", "config": {}, "layers": [layer]}).encode()


def serving(
    manifest_body: bytes, layer: bytes = LAYER, headers: dict[str, str] | None = None
) -> Callable[[Asked], Reply]:
    def reply(asked: Asked) -> Reply:
        return (200, headers or {}, manifest_body) if "/manifests/" in asked.path else (200, {}, layer)

    return reply


async def pull(host: str, registry: OciRegistry | None = None) -> Artifact:
    return await (registry or OciRegistry(timeout_seconds=2)).pull(f"oci://{host}/team/app", "1.0.0")


async def test_an_honest_registry_is_believed() -> None:
    with server(serving(manifest())) as host:
        assert await pull(host) == Artifact("a/b", (Layer("text/plain", LAYER),))


async def test_a_layer_with_another_content_is_refused() -> None:
    with server(serving(manifest(), layer=LAYER[::-1])) as host, pytest.raises(InvalidInput, match="does not match"):
        await pull(host)


async def test_a_layer_that_is_too_short_is_refused() -> None:
    with server(serving(manifest(), layer=LAYER[:-1])) as host, pytest.raises(InvalidInput, match="were promised"):
        await pull(host)


async def test_a_layer_that_is_longer_than_promised_is_not_read_to_its_end() -> None:
    with server(serving(manifest(), layer=LAYER * 9999)) as host, pytest.raises(TooLarge):
        await pull(host)


async def test_a_manifest_that_does_not_match_its_digest_is_refused() -> None:
    reply = serving(manifest(), headers={"Docker-Content-Digest": digest(b"other")})
    with server(reply) as host, pytest.raises(InvalidInput, match=r"The manifest of .* does not match its digest"):
        await pull(host)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b'{"layers": 5}',
        b'{"manifests": []}',
        manifest(digest="../../etc/passwd"),
        manifest(size=-1),
        manifest(size=True),
        manifest(annotations={"a": 1}),
    ],
)
async def test_a_manifest_that_is_none_is_refused(body: bytes) -> None:
    with server(serving(body)) as host, pytest.raises(InvalidInput):
        await pull(host)


async def test_an_artifact_that_is_too_large_is_refused_before_it_is_fetched() -> None:
    with server(serving(manifest(size=2**40))) as host, pytest.raises(TooLarge):
        await pull(host)


def in_pages(more: str, *, with_link: bool = True) -> Callable[[Asked], Reply]:
    """Five tags, two at a time; `more` is what the registry wants to see again for the next page."""
    tags = [f"1.{number}.0" for number in range(5)]

    def reply(asked: Asked) -> Reply:
        path, query = urlsplit(asked.path).path, parse_qs(urlsplit(asked.path).query)
        begin = int(query[more][0].replace("1.", "").replace(".0", "")) + 1 if more in query else 0
        page = tags[begin : begin + 2]
        link = f'<{path}?n=2&{more}={page[-1]}>; rel="next"' if page and page[-1] != tags[-1] else ""
        return 200, {"Link": link} if link and with_link else {}, json.dumps({"tags": page}).encode()

    return reply


@pytest.mark.parametrize(("more", "with_link"), [("last", True), ("last", False), ("next_page", True)])
async def test_tags_are_read_page_by_page_as_the_registry_says(more: str, with_link: bool) -> None:
    with server(in_pages(more, with_link=with_link)) as host:
        found = await OciRegistry().tags(f"oci://{host}/team/app", page=2)
    assert found == [f"1.{number}.0" for number in range(5)]


async def test_tags_that_never_end_or_are_none_are_refused() -> None:
    count = iter(range(10**6))

    def endless(asked: Asked) -> Reply:
        tags = [f"1.0.{next(count)}" for _ in range(500)]
        return 200, {"Link": '</v2/team/app/tags/list?x>; rel="next"'}, json.dumps({"tags": tags}).encode()

    with server(endless) as host, pytest.raises(TooLarge, match="more than 2000 tags"):
        await OciRegistry().tags(f"oci://{host}/team/app")
    same = json.dumps({"tags": ["1.0.0"]}).encode()
    with server(lambda asked: (200, {"Link": '<?>; rel="next"'}, same)) as host:
        assert await OciRegistry().tags(f"oci://{host}/team/app") == ["1.0.0"]
    nowhere = {"Link": '<http://[>; rel="next"'}
    for headers, tags in (
        (nowhere, ["1.0.0"]),
        *(({}, [tag]) for tag in ("", "../x", "1.0.0\n", "\x1b[2J", "a" * 129, 5)),
    ):
        answer = (200, headers, json.dumps({"tags": tags}).encode())
        with (
            server(lambda asked, answer=answer: answer) as host,  # type: ignore[misc]
            pytest.raises(InvalidInput, match="is not one"),
        ):
            await OciRegistry().tags(f"oci://{host}/team/app")
    other = {"Link": '<http://127.0.0.2:9/v2/team/app/tags/list>; rel="next"'}
    with server(lambda asked: (200, other, same)) as host, pytest.raises((Refused, PeerUnavailable)):
        await OciRegistry().tags(f"oci://{host}/team/app")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_in_trouble_is_asked_again_later(status: int) -> None:
    said = json.dumps({"errors": [{"code": "X", "message": "come back later."}]}).encode()
    with server(lambda asked: (status, {"Retry-After": "7"}, said)) as host, pytest.raises(PeerUnavailable) as caught:
        await pull(host)
    assert "come back later" in str(caught.value)
    assert caught.value.retry_after_seconds == 7


async def test_a_registry_that_says_nothing_is_given_up_after_the_timeout() -> None:
    release = threading.Event()

    def reply(asked: Asked) -> Reply:
        release.wait(10)
        return 200, {}, b""

    with server(reply) as host:
        try:
            with pytest.raises(PeerUnavailable, match=r"no answer within 0\.2 s"):
                await pull(host, OciRegistry(timeout_seconds=0.2))
        finally:
            release.set()


async def test_a_blob_may_be_elsewhere_but_credentials_are_not_sent_there(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def storage(asked: Asked) -> Reply:
        seen.append(asked.headers.get("Authorization"))
        return 200, {}, LAYER

    with server(storage) as elsewhere:

        def reply(asked: Asked) -> Reply:
            if asked.headers.get("Authorization") is None:
                return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
            if "/blobs/" in asked.path:
                return 307, {"Location": f"http://{elsewhere}/somewhere?x=1"}, b""
            return 200, {}, manifest()

        with server(reply) as host:
            artifact = await pull(host, OciRegistry(auth_files=[_login(tmp_path, host)]))
    assert artifact.layers[0].content == LAYER
    assert seen == [None]


async def test_a_redirect_without_end_is_given_up() -> None:
    with (
        server(lambda asked: (302, {"Location": asked.path}, b"")) as host,
        pytest.raises(PeerUnavailable, match="redirects without end"),
    ):
        await pull(host)


async def test_a_redirect_to_a_place_without_tls_is_refused() -> None:
    with (
        server(lambda asked: (302, {"Location": "http://198.51.100.1/x"}, b"")) as host,
        pytest.raises(Refused, match="which has no TLS"),
    ):
        await pull(host)


async def test_a_token_service_gets_the_password_and_the_registry_the_token(tmp_path: Path) -> None:
    asked_for: list[dict[str, list[str]]] = []

    def reply(asked: Asked) -> Reply:
        authorization = asked.headers.get("Authorization")
        if asked.path.startswith("/token"):
            asked_for.append(parse_qs(urlsplit(asked.path).query))
            right = authorization == "Basic " + base64.b64encode(b"ada:secret").decode()
            return (200, {}, b'{"token": "t0ken"}') if right else (401, {}, b"")
        if authorization != "Bearer t0ken":
            realm = f"http://{asked.headers['Host']}/token"
            challenge = f'Bearer realm="{realm}",service="r",scope="repository:team/app:pull"'
            return 401, {"WWW-Authenticate": challenge}, b""
        return serving(manifest())(asked)

    with server(reply) as host:
        await pull(host, OciRegistry(auth_files=[_login(tmp_path, host)]))
        assert asked_for == [{"service": ["r"], "scope": ["repository:team/app:pull"]}]
        with pytest.raises(Refused, match="does not let us pull team/app") as caught:
            await pull(host)
    assert caught.value.hint == f"Log in with: podman login {host}"
    assert "secret" not in str(caught.value)


async def test_a_host_outside_loopback_is_spoken_to_with_tls_only() -> None:
    with server(serving(manifest())) as host:
        port = host.partition(":")[2]
        # Linux takes this address for the machine itself, but it is no loopback address: TLS is tried.
        elsewhere = f"0.0.0.0:{port}"
        with pytest.raises(PeerUnavailable, match="does not speak TLS"):
            await pull(elsewhere)
        allowed = OciRegistry(timeout_seconds=2, plain_http_hosts=frozenset({elsewhere}))
        assert (await pull(elsewhere, allowed)).artifact_type == "a/b"


@pytest.mark.parametrize("headers", [{"Retry-After": "\u00b2"}, {"Retry-After": "9" * 5000}, {"Retry-After": "-1"}])
async def test_a_wait_that_is_no_number_is_passed_over(headers: dict[str, str]) -> None:
    with server(lambda asked: (503, headers, b"")) as host, pytest.raises(PeerUnavailable) as caught:
        await pull(host)
    assert caught.value.retry_after_seconds == 5


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5000, "-1", "1, 2"])
async def test_a_length_that_is_no_number_is_the_registrys_fault(length: str) -> None:
    with server(lambda asked: (200, {"Content-Length": length}, b"{}")) as host, pytest.raises(PeerUnavailable):
        await pull(host)


async def test_brackets_without_end_are_the_registrys_fault() -> None:
    deep = b"[" * 200_000
    with server(serving(deep)) as host, pytest.raises(InvalidInput, match="is not JSON"):
        await pull(host)
    with server(lambda asked: (503, {}, deep)) as host, pytest.raises(PeerUnavailable):
        await pull(host)

    def reply(asked: Asked) -> Reply:
        if asked.path.startswith("/token"):
            return 200, {}, deep
        return 401, {"WWW-Authenticate": f'Bearer realm="http://{asked.headers["Host"]}/token"'}, b""

    with server(reply) as host, pytest.raises(PeerUnavailable, match="unusable answer"):
        await pull(host)


@pytest.mark.parametrize("location", ["http://[::1", "http://127.0.0.1:99999999/", "http://127.0.0.1:x/", "//"])
async def test_a_redirect_to_an_address_that_is_none_is_the_registrys_fault(location: str) -> None:
    with (
        server(lambda asked: (302, {"Location": location}, b"")) as host,
        pytest.raises((PeerUnavailable, Refused)),
    ):
        await pull(host)


async def test_a_password_is_not_sent_to_another_site(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def collector(asked: Asked) -> Reply:
        seen.append(asked.headers.get("Authorization"))
        return 401, {}, b""

    with server(collector) as elsewhere:
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{elsewhere}/token",service="r"'}
        with server(lambda asked: (401, challenge, b"")) as host, pytest.raises(Refused, match="another site"):
            await pull(host, OciRegistry(auth_files=[_login(tmp_path, host)]))
    assert seen == [None]


@pytest.mark.parametrize(
    ("realm", "registry", "same"),
    [
        ("auth.docker.io", "registry-1.docker.io", True),
        ("ghcr.io", "ghcr.io", True),
        ("gitlab.example.com", "registry.gitlab.example.com", True),
        ("auth.example.co.uk", "registry.example.co.uk", True),
        ("registry.example:5001", "registry.example:5000", True),
        ("evil.co.uk", "registry.example.co.uk", False),
        ("evil.com", "registry.example.com", False),
        ("evil-docker.io", "registry-1.docker.io", False),
        ("127.0.0.1:5001", "127.0.0.1:5000", False),
        ("127.0.0.1:5000", "127.0.0.1:5000", True),
        ("10.0.0.2", "10.0.0.1", False),
        ("[fd00::2]:1", "[fd00::1]:1", False),
        ("other", "registry", False),
        ("", "registry.example.com", False),
    ],
)
def test_a_token_service_is_of_the_registrys_site_or_not(realm: str, registry: str, same: bool) -> None:
    assert is_same_site(realm, registry) is same


async def test_a_registry_is_reached_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[str, str | None]] = []

    def proxy(asked: Asked) -> Reply:
        asked_for.append((asked.path, asked.headers.get("Proxy-Authorization")))
        return serving(manifest())(asked)

    with server(proxy) as at:
        monkeypatch.setenv("http_proxy", f"http://ada:pa%20ss@{at}")
        monkeypatch.setenv("no_proxy", "")
        registry = OciRegistry(timeout_seconds=2, plain_http_hosts=frozenset({"registry.example:80"}))
        artifact = await pull("registry.example:80", registry)
    assert artifact.artifact_type == "a/b"
    login = "Basic " + base64.b64encode(b"ada:pa ss").decode()
    assert asked_for[0] == ("http://registry.example:80/v2/team/app/manifests/1.0.0", login)


async def test_a_tunnel_is_asked_of_the_proxy_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels: list[bytes] = []

    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            tunnels.append((await connection.receive()).partition(b"\r\n")[0])
            await connection.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(PeerUnavailable, match=r"the proxy 127\.0\.0\.1:.* answered 403"):
            await pull("registry.example")
        group.cancel_scope.cancel()
    assert tunnels == [b"CONNECT registry.example:443 HTTP/1.1"]


def _login(folder: Path, host: str) -> Path:
    file = folder / "auth.json"
    file.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(b"ada:secret").decode()}}}))
    return file
