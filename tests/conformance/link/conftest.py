"""Every test of this folder runs in one process, over plain gRPC, and over gRPC with mutual TLS."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.link.grpc_services import serve_services
from homeport.adapters.link.grpc_site import nodes_service
from homeport.adapters.link.inprocess import InProcessLink
from homeport.ports import SiteLink
from tests.support.identities import TestRealm, link_of
from tests.support.receptions import FrontDesk, front_desk


@dataclass
class Stand:
    desk: FrontDesk
    link: Callable[[str], SiteLink]
    """The link of the node with this id."""


@pytest.fixture(params=["inprocess", "grpc", "tls"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stand]:
    async with front_desk(tmp_path) as desk:
        if request.param == "inprocess":
            yield Stand(desk, lambda node: InProcessLink(desk.reception))
        elif request.param == "grpc":
            async with serve_services([nodes_service(desk.reception)], "127.0.0.1:0") as port:
                yield Stand(desk, lambda node: GrpcSiteLink("127.0.0.1", port))
        else:
            site = TestRealm(tmp_path / "realm").site()
            tls = site.server_context()
            async with serve_services(
                [nodes_service(desk.reception)], "127.0.0.1:0", tls=tls, verify=site.verify
            ) as port:
                yield Stand(desk, lambda node: link_of(site.node(node), port))
