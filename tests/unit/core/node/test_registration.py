"""What a node may say about itself, and the field that each mistake names."""

from dataclasses import replace

import pytest

from homeport.core.model.node import Capabilities, Gpu, NodeInfo
from homeport.core.node.registration import check_capabilities, check_registration
from homeport.errors import InvalidInput
from homeport.vocabulary import NodeId

ABLE = Capabilities(4, 2**30, 2**40, 2**39, "linux", "amd64", gpus=(Gpu("A", "B", 1),))
INFO = NodeInfo(NodeId("pi"), "raspberry", ABLE, {"rack": "7", "homeport.allow": "host-network,/dev/ttyUSB0"})


def fields(info: NodeInfo) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        check_registration(info)
    return [problem.field for problem in caught.value.problems]


def test_an_ordinary_node_is_accepted() -> None:
    check_registration(INFO)


@pytest.mark.parametrize(
    ("info", "field"),
    [
        (replace(INFO, id=NodeId("")), "node.id"),
        (replace(INFO, id=NodeId("a/../b")), "node.id"),
        (replace(INFO, id=NodeId("pi\n")), "node.id"),
        (replace(INFO, hostname="x" * 254), "node.hostname"),
        (replace(INFO, hostname="\x1b[31mred"), "node.hostname"),
        (replace(INFO, agent_address="x" * 254), "node.agent_address"),
        (replace(INFO, labels={str(number): "" for number in range(129)}), "node.labels"),
        (replace(INFO, labels={"rack": "7" * 1025}), "node.labels[rack]"),
        (replace(INFO, labels={"k" * 129: ""}), f"node.labels[{'k' * 40}]"),
        (replace(INFO, labels={"": "x"}), "node.labels[]"),
        (replace(INFO, capabilities=replace(ABLE, cpu_cores=-1)), "node.capabilities.cpu_cores"),
        (replace(INFO, capabilities=replace(ABLE, memory_bytes=2**62)), "node.capabilities.memory_bytes"),
        (replace(INFO, capabilities=replace(ABLE, os="x" * 300)), "node.capabilities.os"),
        (replace(INFO, capabilities=replace(ABLE, gpus=ABLE.gpus * 65)), "node.capabilities.gpus"),
        (
            replace(INFO, capabilities=replace(ABLE, gpus=(Gpu("", "", -1),))),
            "node.capabilities.gpus[0].memory_bytes",
        ),
    ],
)
def test_a_mistake_names_its_field(info: NodeInfo, field: str) -> None:
    assert fields(info) == [field]


def test_every_mistake_is_named_at_once() -> None:
    assert fields(replace(INFO, id=NodeId(""), hostname="x" * 999)) == ["node.id", "node.hostname"]


def test_capabilities_alone_are_named_without_the_node() -> None:
    with pytest.raises(InvalidInput, match=r"^capabilities.cpu_cores: must be between"):
        check_capabilities(replace(ABLE, cpu_cores=-1))
