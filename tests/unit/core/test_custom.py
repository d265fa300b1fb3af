"""One description for images and native programs: what is read, and what is said of what cannot be."""

from typing import Any

import pytest

from homeport.core.custom import OURS, judge_custom, kind_of, read_custom
from homeport.core.model.custom import CustomKind, CustomSpec, HttpProbe, Mount, Port, TcpProbe


def read(section: dict[str, Any], kind: str = "image") -> CustomSpec:
    spec, found = read_custom({OURS: {kind: section}}, repository="oci://registry.example/a/web", revision="1.2.3")
    assert found == []
    assert spec is not None
    return spec


def problems(section: Any, kind: str = "image") -> list[tuple[str, str]]:
    found = judge_custom({OURS: {kind: section}}, repository="oci://registry.example/a/web", revision="1.2.3")
    return [(".".join(str(step) for step in where[2:]), message) for where, message in found]


def test_the_image_is_the_components_own_unless_another_is_named() -> None:
    assert read({}).image == "registry.example/a/web:1.2.3"
    assert read({"reference": "127.0.0.1:5005/b:2"}).image == "127.0.0.1:5005/b:2"
    digest = "registry.example/b@sha256:" + "a" * 64
    assert read({"reference": digest}).image == digest


def test_everything_that_can_be_said_is_read() -> None:
    spec = read(
        {
            "command": ["serve"],
            "args": ["--verbose"],
            "environment": {"LEVEL": "info"},
            "workdir": "/srv",
            "ports": ["8080:80", "127.0.0.1:5353:53/udp"],
            "mounts": [
                {"source": "data", "target": "/data"},
                {"source": "/etc/x", "target": "/x", "read_only": True},
            ],
            "health": {"http": "http://127.0.0.1:8080/ready?x=1", "interval_seconds": 2, "retries": 5},
        }
    )
    assert spec.kind is CustomKind.IMAGE
    assert (spec.command, spec.args, spec.environment) == (("serve",), ("--verbose",), {"LEVEL": "info"})
    assert spec.ports == (Port(8080, 80), Port(5353, 53, "127.0.0.1", "udp"))
    assert spec.mounts == (Mount("data", "/data"), Mount("/etc/x", "/x", read_only=True))
    assert [mount.is_volume for mount in spec.mounts] == [True, False]
    assert spec.probe == HttpProbe("127.0.0.1", 8080, "/ready?x=1")
    assert (spec.rules.interval_seconds, spec.rules.retries) == (2.0, 5)


def test_a_program_is_described_in_the_same_words() -> None:
    spec = read({"command": ["a"], "args": ["b"], "health": {"tcp": "[::1]:80"}}, "process")
    assert (spec.kind, spec.command, spec.args) == (CustomKind.PROCESS, ("a",), ("b",))
    assert spec.probe == TcpProbe("::1", 80)


@pytest.mark.parametrize(
    ("section", "field", "words"),
    [
        ("nginx", "", "must be a mapping"),
        ({"reference": "Not An Image"}, "reference", "is not an image"),
        ({"imge": "x"}, "imge", "is not a field here"),
        ({"comand": ["a"]}, "comand", 'Did you mean "command"?'),
        ({"command": "sleep 1"}, "command", "must be a list of strings"),
        ({"command": []}, "command", "begins with a program"),
        ({"args": ["a", 1]}, "args", "put numbers in quotes"),
        ({"environment": ["A=b"]}, "environment", "must be a mapping"),
        ({"environment": {"A": 1}}, "environment.A", "put it in quotes"),
        ({"environment": {"a-b": "x"}}, "environment.a-b", "is not the name of an environment variable"),
        ({"environment": {"A": "secret://DB"}}, "environment.A", "let a parameter name it"),
        ({"workdir": "here"}, "workdir", "beginning with /"),
        ({"network": "mine"}, "network", '"host" or "bridge"'),
        ({"network": "host", "ports": ["80:80"]}, "ports", "needs none where network is host"),
        ({"ports": "80:80"}, "ports", "must be a list"),
        ({"ports": [80]}, "ports.0", 'write "8080:80"'),
        ({"ports": ["80:80", "0:80"]}, "ports.1", "is not a port"),
        ({"mounts": ["/a:/b"]}, "mounts.0", "a mapping with source and target"),
        ({"mounts": [{"source": "../up", "target": "/a"}]}, "mounts.0.source", "the name of a volume"),
        ({"mounts": [{"source": "a", "target": "/a,b"}]}, "mounts.0.target", "a path in the container"),
        ({"mounts": [{"source": "a", "target": "/a", "readonly": True}]}, "mounts.0.readonly", "read_only"),
        ({"mounts": [{"source": "a", "target": "/a", "read_only": "no"}]}, "mounts.0.read_only", "true or false"),
        ({"health": "curl"}, "health", "must be a mapping"),
        ({"health": {}}, "health", "one of http, tcp and command"),
        ({"health": {"tcp": ":1", "http": "http://a"}}, "health", "one of http, tcp and command"),
        ({"health": {"http": "https://a"}}, "health.http", "an http:// address"),
        ({"health": {"tcp": "a:99999"}}, "health.tcp", "HOST:PORT"),
        ({"health": {"command": "true"}}, "health.command", "list of strings"),
        ({"health": {"tcp": ":1", "interval": 3}}, "health.interval", "interval_seconds"),
        ({"health": {"tcp": ":1", "interval_seconds": "3s"}}, "health.interval_seconds", "number of seconds"),
        ({"health": {"tcp": ":1", "retries": 0}}, "health.retries", "at least 1"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(section: Any, field: str, words: str) -> None:
    ((where, message),) = problems(section)
    assert where == field
    assert words in message


def test_a_program_needs_a_command_and_has_no_ports() -> None:
    assert [where for where, _ in problems({}, "process")] == ["command"]
    assert problems({"command": ["a"], "ports": ["80:80"]}, "process") == [
        ("ports", "is for images; a program of this machine has no such thing.")
    ]


def test_both_or_neither_is_no_kind() -> None:
    both = {OURS: {"image": {}, "process": {"command": ["a"]}}}
    assert kind_of(both) is None
    ((_, message),) = judge_custom(both, repository="oci://r/a", revision="1.0.0")
    assert "says several" in message
    assert judge_custom({OURS: {"null": {}}}, repository="oci://r/a", revision="1.0.0") == []
    assert judge_custom({}, repository="oci://r/a", revision="1.0.0") == []
