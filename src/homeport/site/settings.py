"""Everything that can be set for a site, read once at start."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from homeport.errors import InvalidInput, Problem
from homeport.failpoints import VARIABLE
from homeport.serving.limits import Limits
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    name: SiteName
    """Its folder in Git and its Margo deviceId. It never changes."""
    data: Path
    """The folder of the site's database and of its clone of the deployments repository."""
    git_url: str
    """The deployments repository: a URL or a local path."""
    branch: str = "main"
    poll_seconds: float = 30.0
    """How often a remote repository is asked when nobody says that it moved. Central and webhooks do say so, so
    this only bounds how long a lost word can matter."""
    central_url: str | None = None
    """Where central answers; None for a site on its own, or one that shares a process with central."""
    join_token: str | None = field(default=None, repr=False)
    """With which it joins central at the first start; None asks for a person's approval there."""
    pin: str | None = None
    """Central's key, as `sha256:` and hex, for joining. Neither is needed again afterwards."""
    advertise: str | None = None
    """The host under which nodes and people reach the site, where it is not the one it listens on."""
    svid_folder: Path | None = None
    """Where an authority outside (SPIRE's helper, for one) writes and renews the site's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. Then there is nothing to join, and the same authority certifies its nodes."""
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key (PEM) to show people, instead of the site's own. Re-read when they change."""
    svid_seconds: float = 86_400.0
    """How long the certificates live that the site signs for its nodes and for itself."""
    http_address: tuple[str, int] | None = ("127.0.0.1", 8081)
    """Where people and programs ask the site; None where another role of the process serves them."""
    limits: Limits = field(default_factory=Limits)
    """What connections of people, programs and machines may take."""
    open_loopback: bool = True
    """Whether programs on this machine need no token: whoever can log in here could read the data anyway."""
    grpc_address: str | None = "127.0.0.1:50052"
    """HOST:PORT that nodes dial; None when they live in the same process."""
    heartbeat_seconds: float = 5.0
    """How often nodes are asked to say that they live."""
    stale_seconds: float = 15.0
    """Three missed beats: long enough for a slow link, short enough to know of a dead machine soon."""
    lost_seconds: float = 30.0
    """Six missed beats: work under way on that node is given up, what is installed there stays counted on."""
    overdue_seconds: float = 60.0
    """How long beyond its deadline the answer to an order may be late from a node that is heard: longer than any
    stall of a busy machine, short enough that a wedged one is noticed."""
    sweep_seconds: float = 1.0
    """How often silence is measured."""
    report_seconds: float = 5.0
    """How often central hears from the site when there is nothing to report."""
    events_max: int = 100_000
    """How many events the log keeps."""
    audit_days: int = 400
    """How long the audit trail is kept: a year, and a month to look back on it."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process is to kill itself, for tests of what a crash leaves behind (`homeport.failpoints`)."""
    otlp_url: str | None = None
    """The collector of traces (OTLP over HTTP); None sends none and imports nothing for it."""

    def __post_init__(self) -> None:
        if self.audit_days < 1:
            raise InvalidInput(problems=[Problem("audit_days", "must be at least one day")])
        if not re.match(SITE_NAME_PATTERN, self.name):
            raise InvalidInput(
                problems=[
                    Problem("name", f'"{self.name}" is no name for a site: use small letters, digits and dashes')
                ]
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
