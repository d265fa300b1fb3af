"""Everything that can be set for central, read once at start."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from homeport.errors import InvalidInput, Problem
from homeport.failpoints import VARIABLE
from homeport.serving.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralSettings:
    data: Path
    """The folder of central's database and of its clone of the deployments repository."""
    git_url: str | None = None
    """The deployments repository: a URL or a local path. None makes one, bare, in the data folder."""
    branch: str = "main"
    store_url: str | None = None
    """The database; SQLite in the data folder when None."""
    poll_seconds: float = 30.0
    """How often a remote repository is asked when nobody says that it moved."""
    http_address: tuple[str, int] | None = ("127.0.0.1", 8080)
    """Where people, programs and sites ask central."""
    limits: Limits = field(default_factory=Limits)
    """What connections of people, programs and machines may take."""
    grpc_address: str | None = "127.0.0.1:50051"
    """HOST:PORT of the node registry over gRPC; None where a site of the same process serves it."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides loopback under which central may be addressed."""
    open_loopback: bool = True
    """Whether programs on this machine need no token: whoever can log in here could read the data anyway."""
    tls: bool = False
    """Serve https also on loopback; outside of it nothing else is served."""
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key (PEM) to show people, instead of the SVID. Re-read when they change."""
    svid_folder: Path | None = None
    """Where an authority outside (SPIRE's helper, for one) writes and renews central's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. None: central is the authority itself."""
    trust_domain: str = "homeport.internal"
    """The SPIFFE trust domain. It never changes."""
    wfm_id: str = "central"
    """What central is called in its SPIFFE ID."""
    svid_seconds: float = 86_400.0
    """How long the certificates live that the authority signs: a day, so that a stolen one is soon worthless."""
    intermediate_seconds: float = 30 * 86_400.0
    """How long a site may vouch for its nodes without hearing from central: a month."""
    bundle_refresh_seconds: int = 300
    """How often others should ask for the trust bundle; a rotation of the authority waits for it."""
    site_silence_seconds: float = 30.0
    """After how long a silent site counts as unreachable: six missed reports."""
    sweep_seconds: float = 5.0
    """How often silence is measured."""
    events_max: int = 1_000_000
    """How many events the log keeps: some months of a large fleet, below a gigabyte."""
    audit_days: int = 400
    """How long the audit trail is kept: a year, and a month to look back on it."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where the program helm and logins of registries are found, for looking into charts."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process is to kill itself, for tests of what a crash leaves behind (`homeport.failpoints`)."""
    otlp_url: str | None = None
    """The collector of traces (OTLP over HTTP); None sends none and imports nothing for it."""

    def __post_init__(self) -> None:
        if self.audit_days < 1:
            raise InvalidInput(problems=[Problem("audit_days", "must be at least one day")])
        if self.poll_seconds <= 0 or self.sweep_seconds <= 0 or self.site_silence_seconds <= 0:
            raise InvalidInput(problems=[Problem("poll_seconds", "and all other periods must be above zero")])

    @property
    def own_repository(self) -> Path:
        """Where the repository is that central makes for itself."""
        return self.data / "deployments.git"
