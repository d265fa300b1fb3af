"""What one connection, and all of them together, may take from the web server of a role."""

from dataclasses import asdict, dataclass

from homeport.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    head_bytes_max: int = 32 * 1024
    """Request line and headers together: a browser's cookies fit, a memory filler does not."""
    head_seconds: float = 10.0
    """From the connection, or the last answer's end, to the end of the head."""
    body_seconds: float = 120.0
    """To the end of the body: 8 MiB over a line of half a megabit a second."""
    connection_seconds: float = 3600.0
    """How old a machine's connection may become: its certificate is shown again on the next."""
    connections_max: int = 10_000
    """All together: a site has two or three. The open files that the system allows may bound it earlier."""
    connections_per_address_max: int = 200
    """From one address outside this machine, so that one stranger cannot use up all. Many sites behind one address
    need more."""

    def __post_init__(self) -> None:
        problems = [Problem(name, "must be above zero") for name, bound in asdict(self).items() if bound <= 0]
        if problems:
            raise InvalidInput(problems=problems)
