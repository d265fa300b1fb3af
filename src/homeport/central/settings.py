"""All settings of central, read once at start."""

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from homeport.adapters.local_access import default_folder
from homeport.content.registry.names import TagPolicy
from homeport.core.inference.settings import InferenceSettings
from homeport.core.logs.settings import LogSettings
from homeport.core.pipelines.settings import PipelineSettings
from homeport.core.values.numbers import DAYS_MAX
from homeport.errors import InvalidInput, Problem
from homeport.failpoints import VARIABLE
from homeport.lazy_dataclass import dataclass
from homeport.serving.server.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralSettings:
    data: Path
    """The folder of central's database and of its clone of the deployments repository."""
    git_url: str | None = None
    """The deployments repository: a URL or a local path. None creates a bare one in the data folder."""
    keys: Path | None = None
    """The folder of the authority's and the vault's keys, which replicas share; in the data folder when None."""
    branch: str = "main"
    store_url: str | None = None
    """The database; SQLite in the data folder when None."""
    poll_seconds: float = 30.0
    """How often a remote repository is polled when no notification arrives."""
    http_address: tuple[str, int] | None = ("127.0.0.1", 8080)
    """The address of central's API, for users, programs and sites."""
    limits: Limits = field(default_factory=Limits)
    """Limits of connections of users, programs and machines."""
    registry_address: tuple[str, int] | None = None
    """Where the built-in registry of images, charts and components is served."""
    registry_may_move: bool = False
    """Whether another port near it is chosen where that one is in use, and kept from then on."""
    registry_quota_bytes: int = 20 * 2**30
    """Disk quota of the registry: some twenty images of usual size, and less than a small disk has."""
    registry_tags: str = "versions"
    """Which tags are immutable: `versions` (1.2, v1.2.3-rc.1), `all` or `none`."""
    app_keys: tuple[Path, ...] = ()
    model_keys: tuple[Path, ...] = ()
    """Public keys (PEM, as cosign makes them). With any, app packages of OCI registries are added only when one of
    these keys has signed them."""
    margo_address: tuple[str, int] | None = None
    """Where the Margo management interface is served, with mutual TLS."""
    margo_is_required: bool = False
    """Whether central refuses to start where that port cannot be opened. Otherwise it logs that."""
    margo_base: str = ""
    """A path in front of `/api/v1` of that interface."""
    margo_unknown_types: Literal["refuse", "custom"] = "refuse"
    """What a runtime or deployment type that Margo does not name is in a device's report: an error, or `custom`."""
    grpc_address: str | None = "127.0.0.1:50051"
    """HOST:PORT of jobs, logs and the node registry over gRPC; None where a site of the same process serves them."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names besides loopback under which central may be addressed."""
    access_folder: Path | None = field(default_factory=lambda: default_folder(os.environ))
    """Where the local access keys are published, for the commands of the user who started the role."""
    open_metrics: bool | None = None
    """Whether /metrics needs no authentication, for scrapers that cannot send a token. None: where the role listens
    on loopback alone."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the API, such as https://dashboard.example; `*` lets every page read. Empty
    by default: a page of another origin is refused."""
    tls: bool = False
    """Serve https also on loopback; for other machines it is always https."""
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key (PEM) for users, instead of the SVID. Reloaded when they change."""
    svid_folder: Path | None = None
    """Where an external authority (SPIRE's helper, for one) writes and renews central's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. None: central is the authority itself."""
    trust_domain: str = "homeport.internal"
    """The SPIFFE trust domain. It never changes."""
    wfm_id: str = "central"
    """Central's name in its SPIFFE ID."""
    svid_seconds: float = 86_400.0
    """Lifetime of the certificates that the authority signs: a day, so that a stolen one soon expires."""
    intermediate_seconds: float = 30 * 86_400.0
    """How long a site may sign for its nodes without contact to central: a month."""
    bundle_refresh_seconds: int = 300
    """The refresh interval of the trust bundle; a rotation of the authority waits for it."""
    site_silence_seconds: float = 12.0
    """After how long without contact a site counts as unreachable: two missed reports and the time to notice.
    When central starts, it first waits as long before it reports any site: nobody could call while it was away."""
    sweep_seconds: float = 5.0
    """How often sites are checked for missed reports."""
    lease_seconds: float = 10.0
    """After how long another replica takes over the work of a dead one. With a shorter time, a busy database would
    make replicas consider each other dead."""
    events_max: int = 1_000_000
    """How many events each stream of the log keeps: some months of a large fleet, below a gigabyte."""
    events_days: int = 400
    """Maximum age of events: a year, and a month to evaluate it."""
    audit_days: int = 400
    """How long the audit trail is kept: a year, and a month to evaluate it."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where the helm program and registry logins are found, for checking charts."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process kills itself, for crash tests (`homeport.failpoints`)."""
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    """How long log lines are kept, and where they are sent on to."""
    pipelines: PipelineSettings = field(default_factory=PipelineSettings)
    """What HTTP steps of pipelines may call, and how long runs are kept."""
    otlp_url: str | None = None
    """The trace collector (OTLP over HTTP); None sends no traces and imports nothing for it."""

    def __post_init__(self) -> None:
        for name, days in (("audit_days", self.audit_days), ("events_days", self.events_days)):
            if not 1 <= days <= DAYS_MAX:
                raise InvalidInput(problems=[Problem(name, f"must be from 1 to {DAYS_MAX} days")])
        if self.registry_tags not in set(TagPolicy) or self.registry_quota_bytes < 1:
            known = ", ".join(TagPolicy)
            raise InvalidInput(problems=[Problem("registry_tags", f"must be one of {known}, the quota above zero")])
        if min(self.lease_seconds, self.poll_seconds, self.sweep_seconds, self.site_silence_seconds) <= 0:
            raise InvalidInput(problems=[Problem("poll_seconds", "and all other periods must be above zero")])

    @property
    def keys_folder(self) -> Path:
        return self.keys or self.data / "identity"

    @property
    def own_repository(self) -> Path:
        """The path of the repository that central creates for itself."""
        return self.data / "deployments.git"
