"""Devices of Margo clients: what they report, and which of them may take a deployment."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.core.margo.records import MargoDevice
from homeport.core.margo.text import DEVICE_ID_LENGTH_MAX, gateway_of, is_device_id
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.margo.validation import CAPABILITIES, violations
from homeport.margo.wfm.removed import forget_removed, in_use, remember_removed
from homeport.ports import Clock, Reader, Store, Transaction
from homeport.vocabulary import SiteName

DEVICES_MAX: Final = 10_000
"""Of one client."""
KNOWN_TYPES: Final = {
    "supportedRuntimes": frozenset({"oci", "custom"}),
    "supportedDeploymentTypes": frozenset({"helm", "compose", "custom"}),
}


class GatewayUnknown(NotFound):
    """A child device was reported before its gateway."""


async def put_device(
    store: Store,
    clock: Clock,
    site: SiteName,
    device_id: str,
    body: Mapping[str, Any],
    *,
    takes_unknown_types: bool = False,
) -> bool:
    """Returns whether it is new. Raises InvalidInput and GatewayUnknown."""
    device = read_device(site, device_id, body, clock, takes_unknown_types=takes_unknown_types)

    async def work(tx: Transaction) -> bool:
        gateway = gateway_of(device_id)
        known = await tx.margo_device_ids(site, [device_id, gateway or device_id])
        if gateway is not None and gateway not in known:
            raise GatewayUnknown(
                f"{device_id} was reported before its gateway {gateway}.", hint="Report the gateway first."
            )
        is_new = device_id not in known
        if is_new and len(await tx.margo_device_ids(site)) >= DEVICES_MAX:
            raise InvalidInput(f"A client may have {DEVICES_MAX} devices.", hint="Remove those that are gone.")
        await tx.put_margo_device(device)
        await forget_removed(tx, clock, site, device_id)
        return is_new

    return await store.write(work)


async def remove_device(store: Store, clock: Clock, site: SiteName, device_id: str) -> bool:
    """With the children of a gateway; what is deployed to them is not listed any more. False where there is no such
    device."""

    async def gone_of(reader: Reader) -> list[str]:
        if not await reader.margo_device_ids(site, [device_id]):
            return []
        known = await reader.margo_device_ids(site)
        return [each for each in known if each == device_id or each.startswith(f"{device_id}/")]

    async with store.read() as reader:
        used = await in_use(reader, site, gone) if (gone := await gone_of(reader)) else frozenset()

    async def work(tx: Transaction) -> bool:
        gone = await gone_of(tx)
        if not gone:
            return False
        await tx.drop_margo_devices(site, gone)
        if used:
            await remember_removed(tx, clock, site, device_id, used)
        return True

    return await store.write(work)


def read_device(
    site: SiteName, device_id: str, body: Mapping[str, Any], clock: Clock, *, takes_unknown_types: bool = False
) -> MargoDevice:
    """`takes_unknown_types`: a runtime or deployment type that the contract does not name counts as `custom`."""
    problems = violations(_as_custom(body) if takes_unknown_types else body, CAPABILITIES)
    if not is_device_id(device_id):
        limit = f"of at most {DEVICE_ID_LENGTH_MAX} characters"
        problems.append(Problem("deviceId", f"consists of one or more segments of unreserved characters, {limit}"))
    elif not problems and body["properties"]["id"] != device_id:
        problems.append(Problem("properties.id", f'must be "{device_id}", as in the path'))
    if problems:
        raise InvalidInput(problems=problems)
    extensions = {key: value for key, value in body.items() if key.startswith("x-")}
    properties = _with_custom(body["properties"]) if takes_unknown_types else body["properties"]
    return MargoDevice(site, device_id, properties, body.get("labels") or {}, clock.now(), extensions)


def _as_custom(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """For the schema, which lists the names."""
    properties = body.get("properties")
    if not isinstance(properties, dict):
        return body
    lists = {key: names for key in KNOWN_TYPES if isinstance(names := properties.get(key), list)}
    replaced = {key: ["custom" if _is_unknown(key, each) else each for each in names] for key, names in lists.items()}
    return {**body, "properties": {**properties, **replaced}}


def _with_custom(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The names stay, for rules that select by them."""
    added = {
        key: [*names, "custom"]
        for key in KNOWN_TYPES
        if "custom" not in (names := properties.get(key, [])) and any(_is_unknown(key, each) for each in names)
    }
    return {**properties, **added}


def _is_unknown(key: str, name: Any) -> bool:
    return isinstance(name, str) and name not in KNOWN_TYPES[key]


def hosting(devices: Sequence[MargoDevice]) -> list[MargoDevice]:
    return [each for each in devices if each.is_hosting]
