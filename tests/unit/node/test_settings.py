"""A node's settings, and the mistakes people make with them."""

import re
from pathlib import Path

import pytest

from homeport.errors import InvalidInput, Refused
from homeport.node.settings import NodeSettings, resolve_node_id, split_address
from homeport.vocabulary import NodeId


def test_the_id_is_made_once_and_kept(tmp_path: Path) -> None:
    first = resolve_node_id(NodeSettings(data=tmp_path / "new", hostname="Line 7 / press"))
    assert re.fullmatch(r"Line-7---press-[0-9a-f]{8}", first)
    assert resolve_node_id(NodeSettings(data=tmp_path / "new", hostname="renamed")) == first


def test_an_id_that_was_set_wins(tmp_path: Path) -> None:
    assert resolve_node_id(NodeSettings(data=tmp_path, node_id=NodeId("press"))) == "press"
    assert not (tmp_path / "node-id").exists()


@pytest.mark.parametrize("node_id", ["", "a/b", "-x", "x" * 129])
def test_an_id_that_cannot_be_one_is_refused(tmp_path: Path, node_id: str) -> None:
    with pytest.raises(InvalidInput, match="node_id"):
        NodeSettings(data=tmp_path, node_id=NodeId(node_id))


def test_a_damaged_id_file_is_said_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "node-id").write_text("not an id\n")
    with pytest.raises(InvalidInput, match="node-id"):
        resolve_node_id(NodeSettings(data=tmp_path))


@pytest.mark.parametrize("address", ["0.0.0.0:8082", "[::]:8082", "192.0.2.1:8082", "example.org:8082"])
def test_listening_outside_loopback_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Refused, match="without access control") as caught:
        NodeSettings(data=tmp_path, http_address=address)
    assert caught.value.hint


@pytest.mark.parametrize("address", ["localhost", ":80", "host:", "host:http", "host:70000", ""])
def test_what_is_not_an_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidInput, match="site_address"):
        NodeSettings(data=tmp_path, site_address=address)


def test_addresses_are_split_also_those_of_version_six() -> None:
    assert split_address("x", "[::1]:50052") == ("::1", 50052)
    assert split_address("x", "site.example:50052") == ("site.example", 50052)
