"""Margo at central: what users see of clients and their devices. Central opens the port, which has certificates."""

from typing import Final

from homeport.capability.central import CentralCapability, CentralPart
from homeport.fleet.central.platform import CentralPlatform
from homeport.margo.wfm.rebuilt import read_first_commit
from homeport.margo.wfm.routes import device_routes


def _part(central: CentralPlatform) -> CentralPart:
    return CentralPart(routes=(device_routes(central),))


MARGO: Final = CentralCapability("margo", _part, commit_readers=(read_first_commit,))
