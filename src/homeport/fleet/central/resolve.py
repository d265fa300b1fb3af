"""Resolves a deploy request into the files of each site. Everything is validated here, before anything is
written, so that a refused request has changed nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from homeport.catalog.deployment import deployment_path, moved, parse_deployment, render_deployment
from homeport.catalog.description import app_of
from homeport.core.margo.matching import choose_device
from homeport.core.margo.records import MargoDevice
from homeport.core.model.app import App, Profile
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.parameters import as_value
from homeport.core.update_values import MergedValues, RequestedValues
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.central.apps import AppQuery, find_app
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.named_sites import sites_by_name
from homeport.lazy_dataclass import dataclass
from homeport.ports import AppRecord, DeploymentFilter, Reader
from homeport.vocabulary import DeploymentId, NodeId, RolloutId, SiteName

_PLAIN: Final = re.compile(r"[a-z][a-z0-9]*-[a-z0-9-]*[a-z0-9]")
"""Names that YAML never quotes, unlike `7` or `no`."""
_ID_PLACE: Final = DeploymentId("c0ffee00-5eed-4000-8000-00decade0000")
_SITE_PLACE: Final = SiteName("place-of-the-site-c0ffee00")


@dataclass(frozen=True, slots=True)
class DeployTarget:
    site: SiteName
    nodes: tuple[NodeId, ...] | None = None
    """None: not specified. Empty: every eligible one."""
    device: str | None = None
    """Of a Margo client: the device to use. None: the one that has it, else the first that fits."""


@dataclass(frozen=True, slots=True)
class DeployRequest:
    targets: tuple[DeployTarget, ...]
    app_id: str | None = None
    app: AppQuery = field(default_factory=AppQuery)
    record: AppRecord | None = None
    """The app itself, for a plan of an app that is not in the catalog yet."""
    name: str | None = None
    requested: RequestedValues = field(default_factory=RequestedValues)
    """For every target; a target's own `nodes` override those in it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request with its app. The deployments it updates, and the values they keep, depend on the commit it will be
    written on."""

    record: AppRecord
    app: App
    name: str
    targets: tuple[DeployTarget, ...]
    requested: RequestedValues = field(default_factory=RequestedValues)
    devices: Mapping[SiteName, Sequence[MargoDevice]] = field(default_factory=dict)
    """Of targets that are Margo clients with devices of their own."""

    def requested_for(self, target: DeployTarget) -> RequestedValues:
        if target.nodes is None:
            return self.requested
        return replace(self.requested, placement=replace(self.requested.placement, nodes=target.nodes))

    def device_of(self, target: DeployTarget, profile: Profile, before: Desired | None) -> str | None:
        """Raises NotPlaceable."""
        return choose_device(
            target.site,
            self.devices.get(target.site, ()),
            profile.type.value,
            profile.device_constraints,
            wanted=target.device,
            before=None if before is None or self.requested.reset_values else before.device,
        )

    def render(
        self,
        site: SiteName,
        values: MergedValues,
        deployment_id: DeploymentId,
        rollout_id: RolloutId | None,
        device: str | None = None,
    ) -> bytes:
        return render_deployment(
            deployment_id=deployment_id,
            device=device,
            site=site,
            name=self.name,
            app=self.app,
            app_name=self.record.app_name,
            profile=values.profile,
            values=values.values,
            placement=values.placement,
            policy=values.policy,
            remove_images=values.remove_images,
            restart=values.restart,
            rollout_id=rollout_id,
        )

    def writer(self) -> "Writer":
        return Writer(self)


class Writer:
    """Renders the files of one request. Those with the same values differ only in id and site, so one is rendered and
    the others are derived from it: ten thousand sites take a tenth of a second instead of four."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._patterns: dict[tuple[int, RolloutId | None], tuple[MergedValues, bytes]] = {}
        self._parsed: dict[int, tuple[MergedValues, Desired]] = {}

    def render(
        self,
        target: DeployTarget,
        values: MergedValues,
        deployment_id: DeploymentId,
        rollout_id: RolloutId | None,
        before: Desired | None,
    ) -> bytes:
        site = target.site
        device = self._resolved.device_of(target, values.profile, before)
        if not _PLAIN.fullmatch(site) or device is not None:
            return self._resolved.render(site, values, deployment_id, rollout_id, device)
        key = id(values), rollout_id
        if key not in self._patterns:
            pattern = self._resolved.render(_SITE_PLACE, values, _ID_PLACE, rollout_id)
            self._patterns[key] = values, pattern  # stored with `settled`, whose id() is the key and must stay alive
        pattern = self._patterns[key][1]
        places = _ID_PLACE.encode(), _SITE_PLACE.encode()
        if any(pattern.count(place) != 1 for place in places):
            return self._resolved.render(site, values, deployment_id, rollout_id)
        return pattern.replace(places[0], deployment_id.encode(), 1).replace(places[1], site.encode(), 1)

    def desired(self, site: SiteName, values: MergedValues, deployment_id: DeploymentId, content: bytes) -> Desired:
        """The parsed `content`. Of files with the same values, and of sites without devices, only one is parsed."""
        if site in self._resolved.devices:
            return parse_deployment(content, deployment_path(site, deployment_id), site)
        if id(values) not in self._parsed:
            parsed = parse_deployment(content, deployment_path(site, deployment_id), site)
            self._parsed[id(values)] = values, parsed
        return moved(self._parsed[id(values)][1], site, deployment_id, digest_of_bytes(content))


async def resolve(reader: Reader, request: DeployRequest) -> Resolved:
    """Raises NotFound, Conflict or InvalidInput, by the request's fields."""
    record = request.record or await find_app(reader, app_id=request.app_id, query=request.app)
    app = app_of(record.descriptor, category=record.category)
    await _check_sites(reader, request.targets)
    given = {name: as_value(value) for name, value in request.requested.parameters.items()}
    name = request.name or default_name(record.app_name)
    requested = replace(request.requested, parameters=given)
    return Resolved(record, app, name, request.targets, requested, await _devices(reader, request.targets))


async def present_by_site(reader: Reader, resolved: Resolved) -> dict[SiteName, Deployment]:
    """The deployments that the request updates: same name, same site. Raises where it cannot update them."""
    targets = {target.site for target in resolved.targets}
    one = next(iter(targets)) if len(targets) == 1 else None
    found: dict[SiteName, Deployment] = {}
    for row in await reader.deployments(DeploymentFilter(site=one, name=resolved.name)):
        if not row.wanted or row.site not in targets:
            continue
        if row.site in found:
            raise Conflict(
                f'Site "{row.site}" has two deployments called "{resolved.name}": {found[row.site].id} and {row.id}.',
                hint="Delete one of them first.",
            )
        if row.margo_app_id != resolved.app.margo_id:
            raise Conflict(
                f'"{resolved.name}" at site "{row.site}" is another app: {row.app_name} {row.app_version}.',
                hint="Give this deployment another name with  --name .",
            )
        found[row.site] = row
    return found


async def _devices(reader: Reader, targets: Sequence[DeployTarget]) -> dict[SiteName, list[MargoDevice]]:
    """Of those targets that have any, in one query."""
    found: dict[SiteName, list[MargoDevice]] = {}
    for device in await reader.margo_devices_of([target.site for target in targets]):
        found.setdefault(device.site, []).append(device)
    return found


def default_name(app_name: str) -> str:
    """A deployment's name is a label in many systems, so an app's folder name may need to be adapted."""
    return re.sub(r"[^a-z0-9]+", "-", app_name.lower()).strip("-")[:63].strip("-") or "app"


async def _check_sites(reader: Reader, targets: Sequence[DeployTarget]) -> None:
    known = await sites_by_name(reader, [target.site for target in targets])
    seen: set[SiteName] = set()
    for position, target in enumerate(targets):
        if target.site not in known:
            every = [site.name for site in await reader.sites()]
            hint = did_you_mean(target.site, every, "homeport sites list")
            raise NotFound(f'There is no site "{target.site}".', hint=hint)
        if target.site in seen:
            problem = Problem(f"sites[{position}].site_id", f'"{target.site}" is named twice.')
            raise InvalidInput(problems=[problem])
        seen.add(target.site)
        await _check_nodes(reader, target)


async def _check_nodes(reader: Reader, target: DeployTarget) -> None:
    """A name that no node of the site has is a mistake; a site that has no nodes yet may be prepared for them."""
    names = [node.id for node in await reader.nodes(target.site)] if target.nodes else []
    for wanted in target.nodes or ():
        if names and wanted not in names:
            hint = did_you_mean(wanted, names, "homeport nodes list")
            raise NotFound(f'Site "{target.site}" has no node called "{wanted}".', hint=hint)
