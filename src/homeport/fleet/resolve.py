"""From what a person asked for to what each site's file shall say. Everything is checked here, before anything
is written, so that a refused request has changed nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from homeport.catalog.deployment import deployment_path, parse_deployment, render_deployment
from homeport.catalog.description import app_of
from homeport.core.model.app import App, Profile, Value
from homeport.core.model.deployment import ON_EACH_NODE, USUAL_POLICY, Desired, Placement, Policy, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.parameters import as_value, check_immutable, check_values
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.apps import AppQuery, find_app
from homeport.fleet.index import known_sites
from homeport.fleet.secrets import check_secrets
from homeport.fleet.suggestion import did_you_mean
from homeport.ports import AppRecord, DeploymentFilter, Reader
from homeport.vocabulary import DeploymentId, NodeId, RolloutId, SiteName

_PLAIN: Final = re.compile(r"[a-z][a-z0-9]*-[a-z0-9-]*[a-z0-9]")
"""Names that YAML never puts in quotes, unlike `7` or `no`."""
_ID_PLACE: Final = DeploymentId("c0ffee00-5eed-4000-8000-00decade0000")
_SITE_PLACE: Final = SiteName("place-of-the-site-c0ffee00")


@dataclass(frozen=True, slots=True)
class Target:
    site: SiteName
    nodes: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployRequest:
    targets: tuple[Target, ...]
    app_id: str | None = None
    app: AppQuery = field(default_factory=AppQuery)
    profile: str | None = None
    name: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    placement: Placement = ON_EACH_NODE
    """For every target; a target's own `nodes` take the place of these."""
    policy: Policy = USUAL_POLICY
    remove_images: bool = False
    """Whether its images go with it when it is deleted."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request whose app, profile and values are settled. Which deployments it meets is not: that depends on
    the commit it will be written on."""

    record: AppRecord
    app: App
    profile: Profile
    values: Mapping[str, Value]
    name: str
    targets: tuple[Target, ...]
    placement: Placement = ON_EACH_NODE
    policy: Policy = USUAL_POLICY
    remove_images: bool = False

    def render(self, target: Target, deployment_id: DeploymentId, rollout_id: RolloutId | None) -> bytes:
        return render_deployment(
            deployment_id=deployment_id,
            site=target.site,
            name=self.name,
            app=self.app,
            app_name=self.record.app_name,
            profile=self.profile,
            values=self.values,
            placement=self._placement(target),
            policy=self.policy,
            remove_images=self.remove_images,
            rollout_id=rollout_id,
        )

    def _placement(self, target: Target) -> Placement:
        return replace(self.placement, nodes=target.nodes or self.placement.nodes)

    def writer(self) -> "Writer":
        return Writer(self)

    def desired(self, target: Target, deployment_id: DeploymentId, content: bytes, like: Desired | None) -> Desired:
        """What `content` asks for. `like` is the same for another site; then nothing needs to be parsed."""
        path = deployment_path(target.site, deployment_id)
        if like is None:
            return parse_deployment(content, path, target.site)
        revision = digest_of_bytes(content)
        return replace(
            like,
            id=deployment_id,
            site=target.site,
            path=path,
            revision=revision,
            release=replace(like.release, deployment_id=deployment_id, revision=revision),
            placement=self._placement(target),
        )


class Writer:
    """Renders the files of one request. They differ in id and site only, so one per set of nodes is rendered
    and the others are cut from it: ten thousand sites take a tenth of a second instead of four."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._patterns: dict[tuple[tuple[NodeId, ...], RolloutId | None], bytes] = {}

    def render(self, target: Target, deployment_id: DeploymentId, rollout_id: RolloutId | None) -> bytes:
        if not _PLAIN.fullmatch(target.site):
            return self._resolved.render(target, deployment_id, rollout_id)
        key = target.nodes, rollout_id
        pattern = self._patterns.get(key)
        if pattern is None:
            stand_in = Target(_SITE_PLACE, target.nodes)
            pattern = self._patterns[key] = self._resolved.render(stand_in, _ID_PLACE, rollout_id)
        places = _ID_PLACE.encode(), _SITE_PLACE.encode()
        if any(pattern.count(place) != 1 for place in places):
            return self._resolved.render(target, deployment_id, rollout_id)
        return pattern.replace(places[0], deployment_id.encode(), 1).replace(places[1], target.site.encode(), 1)


async def resolve(reader: Reader, request: DeployRequest) -> Resolved:
    """Raises NotFound, Conflict or InvalidInput, naming what is wrong by the request's fields."""
    record = await find_app(reader, app_id=request.app_id, query=request.app)
    app = app_of(record.descriptor, category=record.category)
    profile = _choose_profile(app, request.profile)
    given = {name: as_value(value) for name, value in request.parameters.items()}
    values, problems = check_values(app, profile, given)
    if problems:
        raise InvalidInput(problems=problems)
    await _check_sites(reader, request.targets)
    await check_secrets(reader, values, [target.site for target in request.targets])
    name = request.name or default_name(record.app_name)
    return Resolved(
        record,
        app,
        profile,
        values,
        name,
        request.targets,
        request.placement,
        request.policy,
        remove_images=request.remove_images,
    )


async def present_by_site(reader: Reader, resolved: Resolved) -> dict[SiteName, Deployment]:
    """The deployments that the request meets: same name, same site. Raises where it cannot update them."""
    targets = {target.site for target in resolved.targets}
    one = next(iter(targets)) if len(targets) == 1 else None
    found: dict[SiteName, Deployment] = {}
    problems: list[Problem] = []
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
                hint="Give this deployment another name with  name .",
            )
        problems += check_immutable(resolved.app, row.parameters, resolved.values)
        found[row.site] = row
    if problems:
        raise InvalidInput(problems=list(dict.fromkeys(problems)))
    return found


def default_name(app_name: str) -> str:
    """A deployment's name is a label in many systems, so an app's folder name may need to be bent a little."""
    return re.sub(r"[^a-z0-9]+", "-", app_name.lower()).strip("-")[:63].strip("-") or "app"


def _choose_profile(app: App, wanted: str | None) -> Profile:
    listed = ", ".join(f"{profile.id} ({profile.type})" for profile in app.profiles)
    if wanted is None:
        fitting: Sequence[Profile] = app.profiles
    else:
        fitting = [each for each in app.profiles if each.id == wanted] or [
            each for each in app.profiles if each.type == wanted
        ]
    if not fitting:
        raise NotFound(f'{app.name} {app.version} has no profile "{wanted}".', hint=f"It has {listed}.")
    if len(fitting) > 1:
        what = f'several profiles of type "{wanted}"' if wanted else "several profiles"
        raise Conflict(f"{app.name} {app.version} has {what}.", hint=f"Say which with  profile : {listed}.")
    return fitting[0]


async def _check_sites(reader: Reader, targets: Sequence[Target]) -> None:
    known = await known_sites(reader, [target.site for target in targets])
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
