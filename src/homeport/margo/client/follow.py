"""Keeps a site in sync with a Margo fleet manager.

An update is verified as a whole, then committed to a repository of the site's own, which the site follows as any
other: from there on there is one path, with the same checks, history and rollback. The manifest counts as adopted,
and its version and ETag are stored, when the site has taken over that commit.
"""

import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, field
from datetime import datetime
from typing import Any, Final

import anyio
import anyio.to_thread

from homeport import __version__
from homeport.catalog.deployment import deployment_path, marker_path
from homeport.catalog.documents import load
from homeport.catalog.marker import render_marker
from homeport.core.margo.bundle import unpack
from homeport.core.margo.client import (
    Adopted,
    UpdateRejected,
    adopted_of,
    is_adopted,
    judge,
    missing,
    verified,
)
from homeport.core.margo.device import Share, capabilities_of
from homeport.core.margo.manifest import (
    MANIFEST_TYPE,
    Manifest,
    bundle_url,
    canonical,
    digest_of,
    is_uuid,
)
from homeport.core.margo.polling import PollSchedule
from homeport.core.margo.status import GatewayCode, MargoError
from homeport.errors import HomeportError, InvalidInput, PermanentError, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, deployment_of, site_folder
from homeport.fleet.site.conductor import Conductor
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.margo.client.reports import StatusReporter
from homeport.margo.client.state import NOTHING_YET, ClientMemory
from homeport.margo.client.transport import WfmRefused, WfmTransport, open_transport, wait_seconds
from homeport.ports import Change, Clock, GitSource, Proposal, Store
from homeport.vocabulary import Commit, DeploymentId, SiteName

AUTHOR: Final = "margo"
BUNDLE_BYTES_MAX: Final = 64 * 1024 * 1024
ADOPTION_SECONDS_MAX: Final = 120.0
CLOSED_SECONDS_MAX: Final = 60.0
"""How long is waited at once outside the polling hours: a clock may be set meanwhile."""
FIRST_NODE_SECONDS_MAX: Final = 10.0
"""How long a new site waits for its first node before it says what it is. Without one it is a gateway that hosts
nothing, and its fleet manager may go by what it hears first."""
INVALID: Final = "INVALID"
COMMIT_MESSAGE: Final = "manifest {}"
_COMMIT_MESSAGE: Final = re.compile(r"manifest ([0-9]{1,20})")

log = get_log("homeport.margo")


@asynccontextmanager
async def open_margo_client(
    url: str,
    *,
    tls: Callable[[], ssl.SSLContext],
    verify: Callable[[ssl.SSLObject], object],
    site: SiteName,
    store: Store,
    clock: Clock,
    git: GitSource,
    conductor: Conductor,
    schedule: PollSchedule,
    share: Share,
    on_contact: Callable[[str | None], None],
    forgotten_version: int = 0,
) -> AsyncIterator["MargoClient"]:
    """`git` is a repository of the site's own, which only the site writes to."""
    async with open_transport(url, tls=tls, verify=verify) as transport:
        yield MargoClient(
            site, store, clock, git, conductor, transport, schedule, share, on_contact, forgotten_version
        )


@dataclass(slots=True)
class MargoClient:
    site: SiteName
    store: Store
    clock: Clock
    git: GitSource
    conductor: Conductor
    transport: WfmTransport
    schedule: PollSchedule
    share: Share
    on_contact: Callable[[str | None], None]
    forgotten_version: int = 0
    """While this one is adopted, an older manifest is believed: an operator says that the fleet manager has lost its
    state. Once: not after the next manifest is adopted, as long as the option stays."""
    local_time: Callable[[datetime], datetime] = lambda now: now.astimezone()
    memory: ClientMemory = field(init=False)
    reporter: StatusReporter = field(init=False)
    _is_announced: bool = False
    """Whether capabilities were reported since the start: the first call of all, also where nothing has changed."""

    def __post_init__(self) -> None:
        self.memory = ClientMemory(self.store)
        self.reporter = StatusReporter(
            self.store, self.conductor, self.transport, self.memory, wait_until_open=self._until_open
        )

    async def run(self) -> None:
        """Runs while the role runs."""
        if not await self.memory.load():
            await self._remember_from_git()
        if not self.forgotten_version and self.memory.kept.forgotten:
            await self.memory.save(forgotten=0)  # the option was removed: given again, it has its effect again
        self._warn_of_used_option()
        await self.reporter.begin()
        if not self.memory.kept.capabilities:
            with anyio.move_on_after(min(self.schedule.poll_seconds / 2, FIRST_NODE_SECONDS_MAX)):
                while "cpus" not in self._capabilities()["properties"]:  # noqa: ASYNC110 - once in a site's life
                    await anyio.sleep(0.05)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poll)
            tasks.start_soon(self.reporter.run)

    async def _remember_from_git(self) -> None:
        """What was kept is damaged. Each adopted manifest is a commit here, which says its version; it may come once
        more, and nothing older. Its deployments are there as well, so nothing is fetched or changed by that."""
        head = await self.git.head()
        message = "" if head is None else (await self.git.log(head))[0]
        found = _COMMIT_MESSAGE.fullmatch(message.strip())
        version = int(found[1]) - 1 if found else 0
        log.error("stored state of the fleet manager damaged, restored from the commit", version=version)
        await self.memory.save(adopted=Adopted(version, ""), commit=head or "", forgotten=self.forgotten_version)

    def _warn_of_used_option(self) -> None:
        if self.forgotten_version and self.memory.kept.forgotten == self.forgotten_version:
            log.warning("--wfm-forget has no effect any more, remove it", version=self.forgotten_version)

    async def _poll(self) -> None:
        backoff = Backoff(first_seconds=1.0, last_seconds=max(self.schedule.poll_seconds, 60.0))
        while True:
            await self._until_open()
            try:
                await self.round()
                self.on_contact(None)
                backoff.reset()
                seconds = self.schedule.poll_seconds * (0.9 + 0.2 * backoff.chance.random())
            except HomeportError as error:
                seconds = self._failed(error, backoff)
            except Exception as error:  # whatever another vendor's server says, it must not end the site
                log.exception("fleet manager not followed because of a fault in Homeport")
                self.on_contact(f"Homeport itself failed: {type(error).__name__}.")
                seconds = max(self.schedule.poll_seconds, backoff.next_seconds())
            await anyio.sleep(seconds)

    def _failed(self, error: HomeportError, backoff: Backoff) -> float:
        """Returns how long to wait. Everything that runs goes on."""
        if not self.schedule.is_downtime(self.local_time(self.clock.now())):
            self.on_contact(str(error))
            message = "margo update rejected" if isinstance(error, UpdateRejected) else "fleet manager not followed"
            log.warning(message, why=str(error), security=isinstance(error, UpdateRejected))
        if isinstance(error, TransientError):
            return wait_seconds(error, backoff.next_seconds(), chance=backoff.chance.random())
        return self.schedule.poll_seconds

    async def _until_open(self) -> None:
        while seconds := self.schedule.seconds_until_open(self.local_time(self.clock.now())):  # noqa: ASYNC110
            await anyio.sleep(min(seconds, CLOSED_SECONDS_MAX))

    async def round(self) -> None:
        """Reports capabilities where they have changed, then asks for the manifest. Raises HomeportError."""
        adopted = self.memory.kept.adopted
        headers = {"Accept": MANIFEST_TYPE, **({"If-None-Match": adopted.etag} if adopted.etag else {})}
        try:
            await self._report_capabilities()
            reply = await self.transport.get("/api/v1/deployments", headers)
        except WfmRefused:
            self.reporter.polled(is_accepted=False)
            raise
        self.reporter.polled(is_accepted=True)
        if reply.status != 304 and not is_adopted(reply.body, adopted):
            try:
                manifest = judge(reply.body, reply.etag, self._newest_known(), media_type=reply.media_type)
                await self._adopt(adopted_of(manifest, reply.body, reply.etag), manifest)
            except UpdateRejected as error:
                await self.conductor.source_failed(f"An update of the fleet manager was rejected: {error}")
                raise
        await self.reporter.report_refusals()

    def _newest_known(self) -> Adopted:
        """What a manifest has to be newer than."""
        kept = self.memory.kept
        is_forgotten = kept.adopted.version == self.forgotten_version != kept.forgotten
        return NOTHING_YET if is_forgotten else kept.adopted

    def _capabilities(self) -> Mapping[str, Any]:
        nodes = self.conductor.memory.nodes.values()
        return capabilities_of(self.site, nodes, version=__version__, share=self.share)

    async def _report_capabilities(self) -> None:
        body = self._capabilities()
        digest, known = digest_of(canonical(body)), self.memory.kept.capabilities
        if digest == known and self._is_announced:
            return
        try:
            await self.transport.send("PUT", f"/api/v1/capabilities/{self.site}", body)
        except TransientError as error:
            if not known or error.retry_after_seconds:
                raise  # the first report comes before any other call, and a wait that was asked for is kept
            log.warning("capabilities not reported, will retry", why=str(error))
        except WfmRefused as error:
            if not known:
                raise
            self._is_announced = True
            log.warning("capabilities refused by the fleet manager", why=str(error))
        else:
            self._is_announced = True
            if digest != known:
                await self.memory.save(capabilities=digest)

    async def _adopt(self, adopted: Adopted, manifest: Manifest) -> None:
        have = await self._files()
        contents = await self._fetched(manifest, have)
        announced = {each.deployment_id: each.announced_as for each in manifest.deployments if each.announced_as}
        elsewhere = {
            key: error
            for key, content in contents.items()
            if (error := _error_of(self.site, announced.get(key, key), content)) is not None
        }
        taken = {key: content for key, content in contents.items() if key not in elsewhere}
        async with self.memory.adopting:
            commit = await self._commit(taken, manifest)
            await self._until_taken_over(commit)
            refusals = {
                key: found
                for key, content in contents.items()
                if (found := self._refusal(key, content, elsewhere.get(key))) is not None
            }
            await self.memory.save(
                adopted=adopted,
                commit=commit,
                refusals=refusals,
                announced={**self._still_reported(), **announced},
                forgotten=self.forgotten_version,
            )
        log.info("manifest adopted", version=manifest.version, deployments=len(contents), commit=commit[:8])

    def _still_reported(self) -> dict[str, str]:
        """Of those that are about to be removed, which is reported under the name that they were announced with."""
        kept = self.memory.kept
        return {key: text for key, text in kept.announced.items() if key in kept.components}

    async def _files(self) -> dict[DeploymentId, bytes]:
        head = await self.git.head()
        if head is None:
            return {}
        files = await self.git.files(head, site_folder(self.site), size_max=FILE_SIZE_MAX)
        return {key: file.content for file in files if (key := deployment_of(file.path)) is not None}

    async def _fetched(self, manifest: Manifest, have: Mapping[DeploymentId, bytes]) -> dict[DeploymentId, bytes]:
        """The contents of all deployments of the manifest. One that is missing or wrong drops the whole update."""
        wanted = missing(manifest, {key: digest_of(content) for key, content in have.items()})
        if wanted.bundle is not None:
            reply = await self.transport.get_large(bundle_url(wanted.bundle), size_max=BUNDLE_BYTES_MAX)
            content = verified(reply.body, wanted.bundle, "The bundle")
            try:
                return await anyio.to_thread.run_sync(unpack, content, manifest)
            except InvalidInput as error:
                raise UpdateRejected(str(error)) from error
        found = {each.deployment_id: have.get(each.deployment_id, b"") for each in manifest.deployments}
        for each in wanted.singles:
            reply = await self.transport.get(each.url, size_max=FILE_SIZE_MAX)
            found[each.deployment_id] = verified(reply.body, each.digest, f"Deployment {each.deployment_id}")
        return found

    async def _commit(self, contents: Mapping[DeploymentId, bytes], manifest: Manifest) -> Commit:
        wanted: dict[str, bytes] = {deployment_path(self.site, key): content for key, content in contents.items()}
        wanted[marker_path(self.site)] = render_marker(self.site)

        async def decide(head: Commit | None) -> Proposal:
            files = [] if head is None else await self.git.files(head, site_folder(self.site), size_max=FILE_SIZE_MAX)
            there = {file.path: file.content for file in files}
            changes = [Change(path, content) for path, content in wanted.items() if there.get(path) != content]
            changes += [Change(path, None) for path in there.keys() - wanted.keys()]
            return Proposal(changes, COMMIT_MESSAGE.format(manifest.version))

        commit = await self.git.commit(decide, author=AUTHOR) or await self.git.head()
        assert commit is not None, "the marker is in every commit"
        self.git.nudge()
        return commit

    async def _until_taken_over(self, commit: Commit) -> None:
        try:
            with anyio.fail_after(ADOPTION_SECONDS_MAX):
                while self.conductor.memory.applied != commit:  # noqa: ASYNC110 - once in a change
                    await anyio.sleep(0.02)
        except TimeoutError as error:
            raise TransientError("The site has not taken over the manifest yet.") from error

    def _refusal(self, key: DeploymentId, content: bytes, error: MargoError | None) -> Mapping[str, Any] | None:
        """Why this site cannot take it; the rest of the manifest is adopted."""
        if error is None and key in self.conductor.memory.unreadable:
            problem = self.conductor.memory.source_problem or "the deployment is not valid"
            error = MargoError(INVALID, str(_metadata(content).get("name") or key), problem)
        return None if error is None else {**asdict(error), "components": _component_names(content)}


def _error_of(site: SiteName, announced: str, content: bytes) -> MargoError | None:
    """Why it is not even tried. The site is an opaque gateway: it shows no children, so another device is none of
    its own."""
    metadata = _metadata(content)
    if not is_uuid(announced):
        return MargoError(INVALID, str(metadata.get("name") or announced), f'its id "{announced}" is not a UUID')
    device = metadata.get("deviceId")
    if not isinstance(device, str) or device == site:
        return None
    if device == f"{site}/*":
        message = "this gateway does not place workloads on children by itself"
        return MargoError(GatewayCode.NO_AUTONOMOUS_PLACEMENT, site, message)
    return MargoError(GatewayCode.UNKNOWN_CHILD, site, f'there is no device "{device[:200]}" here')


def _document(content: bytes) -> Mapping[str, Any]:
    try:
        data = load(content, "deployment").data
    except PermanentError:
        return {}  # the site refuses it with its line
    return data if isinstance(data, dict) else {}


def _metadata(content: bytes) -> Mapping[str, Any]:
    metadata = _document(content).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _component_names(content: bytes) -> list[str]:
    try:
        components = _document(content)["spec"]["deploymentProfile"]["components"]
        return [str(each["name"]) for each in components]
    except (KeyError, TypeError):
        return []
