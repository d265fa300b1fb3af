"""Which devices of a client may take a deployment profile, and why others may not.

A device needs the profile's deployment type, then has to meet its `deviceConstraints`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from homeport.core.margo.records import MargoDevice
from homeport.core.placement.eligibility import DeviceProperties, refusal
from homeport.errors import NotPlaceable
from homeport.vocabulary import SiteName

SHOWN_MAX = 5


def misfit(device: MargoDevice, profile_type: str, constraints: Mapping[str, Any] | None) -> str | None:
    """Why the device cannot take it, as a sentence without a subject; None when it can."""
    if not device.is_hosting:
        return "hosts no workloads"
    types: Sequence[str] = device.properties["supportedDeploymentTypes"]
    if profile_type not in types:
        return f"supports {', '.join(types)}, not {profile_type}"
    return refusal(constraints, DeviceProperties(device.properties, device.labels))


def choose_device(
    site: SiteName,
    devices: Sequence[MargoDevice],
    profile_type: str,
    constraints: Mapping[str, Any] | None,
    *,
    wanted: str | None = None,
    before: str | None = None,
) -> str | None:
    """The id of the device that a deployment to this client is for: the one that is wanted, else the one that has it,
    else the first that fits. None for a client that has reported none yet, and for a site of ours, which is one
    device and places by itself. Raises NotPlaceable."""
    if not devices or any(each.id == site for each in devices):
        if wanted not in (None, site):
            raise NotPlaceable(
                f'"{site}" has reported no device "{wanted}".', hint=f"See  homeport sites devices {site}"
            )
        return None
    misfits = {each.id: misfit(each, profile_type, constraints) for each in sorted(devices, key=lambda each: each.id)}
    chosen = wanted or (before if before in misfits or _gateway_choosing(before) in misfits else None)
    if chosen is None:
        return _first(site, misfits)
    why = _why_not(chosen, misfits)
    if why is None:
        return chosen
    fitting = [each for each, reason in misfits.items() if reason is None]
    others = f"These can: {', '.join(fitting[:SHOWN_MAX])}." if fitting else "No other device can take it either."
    hint = others if wanted else f"{others} Choose one with --device; it is removed from {chosen} then."
    raise NotPlaceable(f'{chosen} of "{site}" cannot take it: it {why}.', hint=hint)


def _first(site: SiteName, misfits: Mapping[str, str | None]) -> str:
    for device, why in misfits.items():
        if why is None:
            return device
    reasons = [f"{device} {why}" for device, why in misfits.items()]
    more = f" and {len(reasons) - SHOWN_MAX} more" if len(reasons) > SHOWN_MAX else ""
    raise NotPlaceable(
        f'No device of "{site}" can take it: {"; ".join(reasons[:SHOWN_MAX])}{more}.',
        hint="Choose another profile with --profile, or another site.",
    )


def _gateway_choosing(device: str | None) -> str | None:
    """The gateway in `gateway/*`, which leaves the choice of a child to it."""
    return device.removesuffix("/*") if device is not None and device.endswith("/*") else None


def _why_not(device: str, misfits: Mapping[str, str | None]) -> str | None:
    gateway = _gateway_choosing(device)
    if gateway is None:
        return misfits.get(device, "was not reported by this client")
    if gateway not in misfits:
        return "names a gateway that was not reported by this client"
    children = {each: why for each, why in misfits.items() if each.startswith(f"{gateway}/")}
    if None in children.values():
        return None
    return "has no child device that fits" if children else "has no child devices"
