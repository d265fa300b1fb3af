"""Devices of Margo clients: what they report, and which of them may take a deployment."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.core.margo.records import MargoDevice
from homeport.core.margo.text import gateway_of, is_device_id
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.margo.validation import CAPABILITIES, violations
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import SiteName

DEVICES_MAX: Final = 10_000
"""Of one client."""


class GatewayUnknown(NotFound):
    """A child device was reported before its gateway."""


async def put_device(store: Store, clock: Clock, site: SiteName, device_id: str, body: Mapping[str, Any]) -> bool:
    """Returns whether it is new. Raises InvalidInput and GatewayUnknown."""
    device = read_device(site, device_id, body, clock)

    async def work(tx: Transaction) -> bool:
        known = {each.id for each in await tx.margo_devices(site)}
        gateway = gateway_of(device_id)
        if gateway is not None and gateway not in known:
            raise GatewayUnknown(
                f"{device_id} was reported before its gateway {gateway}.", hint="Report the gateway first."
            )
        if device_id not in known and len(known) >= DEVICES_MAX:
            raise InvalidInput(f"A client may have {DEVICES_MAX} devices.", hint="Remove those that are gone.")
        await tx.put_margo_device(device)
        return device_id not in known

    return await store.write(work)


async def remove_device(store: Store, site: SiteName, device_id: str) -> bool:
    """With the children of a gateway. False where there is no such device."""

    async def work(tx: Transaction) -> bool:
        known = [each.id for each in await tx.margo_devices(site)]
        gone = [each for each in known if each == device_id or each.startswith(f"{device_id}/")]
        await tx.drop_margo_devices(site, gone)
        return device_id in known

    return await store.write(work)


def read_device(site: SiteName, device_id: str, body: Mapping[str, Any], clock: Clock) -> MargoDevice:
    problems = violations(body, CAPABILITIES)
    if not is_device_id(device_id):
        problems.append(Problem("deviceId", "consists of one or more segments of unreserved characters"))
    elif not problems and body["properties"]["id"] != device_id:
        problems.append(Problem("properties.id", f'must be "{device_id}", as in the path'))
    if problems:
        raise InvalidInput(problems=problems)
    extensions = {key: value for key, value in body.items() if key.startswith("x-")}
    return MargoDevice(site, device_id, body["properties"], body.get("labels") or {}, clock.now(), extensions)


def hosting(devices: Sequence[MargoDevice]) -> list[MargoDevice]:
    return [each for each in devices if each.is_hosting]
