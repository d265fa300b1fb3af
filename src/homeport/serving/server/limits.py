"""Limits of one connection, and of all together, of a role's web server."""

from dataclasses import asdict

from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    head_bytes_max: int = 32 * 1024
    """Request line and headers together: enough for a browser's cookies, too little to fill the memory."""
    head_seconds: float = 10.0
    """From the connection, or the end of the last response, to the end of the head."""
    body_seconds: float = 120.0
    """To the end of the body: 8 MiB over a line of half a megabit a second."""
    discarded_bytes_max: int = 256 * 1024 * 1024
    """Of a body that comes after its answer, before the connection is closed. Many clients read no answer before they
    have sent everything, and would only see that the connection was reset: enough for most layers of an image that
    the registry has refused, a quarter of a second of this machine's time, and not without an end."""
    connection_seconds: float = 3600.0
    """Maximum age of a machine's connection: its certificate is presented again on the next."""
    connections_max: int = 12_000
    """In total: a site has two or three. Ten thousand Margo clients that are all connected leave room for people and
    for those that reconnect before their old connection is gone. The system's limit of open files may be lower."""
    connections_per_address_max: int = 200
    """From one remote address, so that one client cannot use up all. Many sites behind one address need
    more."""

    def __post_init__(self) -> None:
        problems = [Problem(name, "must be above zero") for name, bound in asdict(self).items() if bound <= 0]
        if problems:
            raise InvalidInput(problems=problems)
