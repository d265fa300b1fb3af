"""All settings of a site, read once at start."""

import os
import re
from dataclasses import field
from pathlib import Path

from homeport.adapters.local_access import default_folder
from homeport.core.inference.settings import InferenceSettings
from homeport.core.logs.settings import LogSettings
from homeport.core.margo.device import share
from homeport.core.margo.polling import schedule
from homeport.core.values.addresses import is_loopback
from homeport.core.values.numbers import DAYS_MAX
from homeport.errors import InvalidInput, Problem, Refused
from homeport.failpoints import VARIABLE
from homeport.lazy_dataclass import dataclass
from homeport.serving.server.limits import Limits
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    name: SiteName
    """Its folder in Git and its Margo deviceId. It never changes."""
    data: Path
    """The folder of the site's database and of its clone of the deployments repository."""
    git_url: str | None = None
    """The deployments repository: a URL or a local path. None: the one that central keeps, over the link to it."""
    wfm_url: str | None = None
    """The Margo fleet manager that the site follows instead of Git: its https address, with its base path."""
    wfm_poll_seconds: float = 15.0
    """How often the fleet manager is asked for a new manifest."""
    wfm_hours: tuple[str, ...] = ()
    """When it is asked (`06:00-22:00`, local time); always when empty."""
    wfm_downtime: tuple[str, ...] = ()
    """When it is never called, and errors of communication are not reported."""
    wfm_share: tuple[str, ...] = ()
    """What is reported of the nodes, at most (`cores=2`, `memory=4Gi`, `storage=100Gi`): the rest of the machines is
    for others. Everything when empty."""
    wfm_forgotten_version: int = 0
    """While this manifest version is adopted, older manifests are accepted: the fleet manager has lost its state, or
    is another one now. Once: not after the next manifest is adopted, until the site was started without it."""
    branch: str = "main"
    poll_seconds: float = 30.0
    """How often a remote repository is polled when no notification arrives. Central and webhooks do notify, so this
    only limits the delay after a lost notification."""
    central_url: str | None = None
    """Central's address; None for a site without central, or one that shares a process with central."""
    join_token: str | None = field(default=None, repr=False)
    """Authorizes the join at the first start; None requests an administrator's approval at central."""
    pin: str | None = None
    """Central's key, as `sha256:` and hex, for joining. Neither is needed again afterwards."""
    advertise: str | None = None
    """The host under which nodes and users reach the site, where it differs from the one it listens on."""
    svid_folder: Path | None = None
    """Where an external authority (SPIRE's helper, for one) writes and renews the site's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. Then there is nothing to join, and the same authority certifies its nodes."""
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key (PEM) for users, instead of the site's own. Reloaded when they change."""
    svid_seconds: float = 86_400.0
    """Lifetime of the certificates that the site signs for its nodes and for itself."""
    http_address: tuple[str, int] | None = ("127.0.0.1", 8081)
    """The address of the site's API; None where another role of the process serves it."""
    limits: Limits = field(default_factory=Limits)
    """Limits of connections of users, programs and machines."""
    access_folder: Path | None = field(default_factory=lambda: default_folder(os.environ))
    """Where the local access keys are published, for the commands of the user who started the role."""
    open_metrics: bool | None = None
    """Whether /metrics needs no authentication, for scrapers that cannot send a token. None: where the role listens
    on loopback alone."""
    grpc_address: str | None = "127.0.0.1:50052"
    """HOST:PORT for nodes; None when they are in the same process."""
    orchion_address: str | None = None
    """HOST:PORT on loopback for agents and clients of Orchion, with the local key; None serves `orchion.v1` with the
    other services only. What registers there is never given work."""
    orchion_anonymous: bool = False
    """Whether agents without credentials are served there: every program of this machine may then register nodes,
    see them, and submit inference."""
    cache_bytes: int | None = 20 * 2**30
    """What the content kept for its nodes may take on disk; None keeps none, and nodes fetch everything by
    themselves."""
    plain_http_registries: frozenset[str] = frozenset()
    """HOST:PORT of registries that are accessed without TLS, in addition to those on loopback."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the API, such as https://dashboard.example; `*` lets every page read. Empty
    by default: a page of another origin is refused."""
    heartbeat_seconds: float = 5.0
    """The heartbeat interval of nodes."""
    stale_seconds: float = 15.0
    """Three missed heartbeats: long enough for a slow link, short enough to detect a dead machine soon."""
    lost_seconds: float = 30.0
    """Six missed heartbeats: work under way on that node is given up, what is installed there still counts."""
    orphan_grace_seconds: float = 600.0
    """How long a site waits after its start before containers of an unknown node count as orphans."""
    overdue_seconds: float = 60.0
    """How long after its deadline the result of an order from a connected node may arrive: longer than any stall of a
    busy machine, short enough to detect a hung one."""
    job_strategy: str = "least-loaded"
    """Which of the nodes that can run a job gets it: first-fit, round-robin, least-loaded, gpu-aware, spread, or a
    class of one's own as `package.module:Class`."""
    sweep_seconds: float = 1.0
    """How often heartbeats are checked."""
    report_seconds: float = 5.0
    """The interval of reports to central when there is nothing to report."""
    events_max: int = 100_000
    """How many events the log keeps."""
    audit_days: int = 400
    """How long the audit trail is kept: a year, and a month to evaluate it."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process kills itself, for crash tests (`homeport.failpoints`)."""
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    """How long log lines are kept, and where they are sent on to."""
    otlp_url: str | None = None
    """The trace collector (OTLP over HTTP); None sends no traces and imports nothing for it."""

    def __post_init__(self) -> None:
        schedule(self.wfm_poll_seconds, self.wfm_hours, self.wfm_downtime)
        share(self.wfm_share, "wfm_share")
        if self.wfm_url is not None and self.git_url is not None:
            raise InvalidInput(
                "A site has one source of desired state, and two were given.",
                hint="Give --git URL, or --source margo --wfm URL.",
            )
        if self.git_url is None and self.central_url is None and self.wfm_url is None:
            raise InvalidInput(
                "The site has no repository to follow.", hint="Give --central URL, or a repository with --git URL."
            )
        if not 1 <= self.audit_days <= DAYS_MAX:
            raise InvalidInput(problems=[Problem("audit_days", f"must be from 1 to {DAYS_MAX} days")])
        if not re.fullmatch(SITE_NAME_PATTERN, self.name):
            raise InvalidInput(
                problems=[
                    Problem("name", f'"{self.name}" is not a valid site name: use small letters, digits and dashes')
                ]
            )
        if self.orchion_address is not None and not is_loopback(self.orchion_address.rpartition(":")[0].strip("[]")):
            raise Refused(
                f"Refusing to serve agents of Orchion on {self.orchion_address}: this port has no TLS.",
                hint="Keep it local (--orchion 127.0.0.1:50051), and let agents of other machines use an SSH tunnel.",
            )
        if self.orchion_anonymous and self.orchion_address is None:
            raise InvalidInput(
                problems=[Problem("orchion_anonymous", "needs an address to listen on")],
                hint="Give one with  --orchion 127.0.0.1:50051",
            )
        if self.svid_folder is not None and (self.pin is not None or self.join_token is not None):
            raise InvalidInput(
                problems=[Problem("svid_folder", "excludes joining: the identity comes from outside")],
                hint="Leave out --join and --pin, or --svid-dir.",
            )
        if not 0 < self.heartbeat_seconds < self.stale_seconds < self.lost_seconds:
            raise InvalidInput(
                problems=[
                    Problem("heartbeat_seconds", "must be shorter than stale_seconds, and that than lost_seconds")
                ]
            )
