"""How logs are kept, limited and sent on: the part of each role's settings that is about logs."""

from collections.abc import Mapping
from dataclasses import field

from homeport.core.values.numbers import DAYS_MAX
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

_BYTES_MIN = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    days: float = 7.0
    """How long lines are kept at central and at a site."""
    bytes_max: int = 2 * 2**30
    """The size of the log file of central or of a site; the oldest lines are removed beyond it."""
    own: bool = False
    """Whether the role's own log lines are stored, too: on for the commands that start roles."""
    otlp_url: str | None = None
    """Where lines are sent as OTLP over HTTP, such as http://collector:4318/v1/logs."""
    loki_url: str | None = None
    """Where lines are pushed to Loki, such as http://loki:3100/loki/api/v1/push."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with both, for a tenant or a token (X-Scope-OrgID, Authorization)."""

    def __post_init__(self) -> None:
        if not 0 < self.days <= DAYS_MAX:
            raise InvalidInput(problems=[Problem("logs_days", f"must be above zero, and at most {DAYS_MAX}")])
        if self.bytes_max < _BYTES_MIN:
            raise InvalidInput(problems=[Problem("logs_bytes_max", f"must be at least {_BYTES_MIN}")])
        for name, url in (("logs_otlp_url", self.otlp_url), ("logs_loki_url", self.loki_url)):
            if url is not None and not url.startswith(("http://", "https://")):
                raise InvalidInput(problems=[Problem(name, f'"{url}" is not a URL; write http:// or https://')])


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLogSettings:
    bytes_max: int = 256 * 2**20
    """The size of the buffer on disk, which holds lines until the site has stored them."""
    lines_per_second: float = 5_000.0
    """How many lines one container, job or role may write; more are dropped, and counted. 0 for no limit."""
    bytes_per_second: float = 2_000_000.0
    own: bool = False
    """Whether the node's own log lines are sent, too: on for the commands that start roles."""

    def __post_init__(self) -> None:
        if self.bytes_max < _BYTES_MIN:
            raise InvalidInput(problems=[Problem("logs_bytes_max", f"must be at least {_BYTES_MIN}")])
        if self.lines_per_second < 0 or self.bytes_per_second <= 0:
            raise InvalidInput(problems=[Problem("logs_lines_per_second", "must not be below zero")])
