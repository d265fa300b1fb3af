"""Which connections a server accepts. What is too much is closed before anything is done for it: a TLS handshake
costs a millisecond and some 60 kB, and a client that begins one and sends no more holds an open file for its
whole timeout.
"""

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from homeport.core.values.addresses import is_loopback
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.serving.server.limits import Limits

REFUSED_AT_ONCE: Final = 256
"""How many connections are closed in one step of the event loop, before those that are open have their turn."""
LOG_SECONDS: Final = 1.0
WAITED_SECONDS_MAX: Final = 30.0
"""How long a connection may have waited before its handshake begins: half of the minute after which a site of ours
gives up. On a machine that falls behind, a handshake that begins later is in vain for both."""
_TCP_CLOSE_WAIT: Final = 8
"""The state of a connection whose other end has sent everything it will ever send."""
_TCP_INFO: Final = struct.Struct("=B51xI")
"""Of what the system knows of a connection: its state, and the milliseconds since something arrived from its client,
or since it was opened where nothing has."""

log = get_log("homeport.serving")


@dataclass(slots=True)
class Admission:
    """Counts the open connections of one server, from the moment that they are accepted."""

    limits: Limits
    monotonic: Callable[[], float] = time.monotonic
    total: int = 0
    by_address: Counter[str] = field(default_factory=Counter)
    _logged_at: float | None = None
    _refused: int = 0
    """Since that was logged."""

    def admit(self, address: str) -> bool:
        """Whether there is room for one more, which is counted then."""
        if self.total >= self.limits.connections_max:
            return self._refuse("connection rejected, too many connections", address, self.total)
        mine = self.by_address[address]
        if mine >= self.limits.connections_per_address_max and not is_loopback(address):
            return self._refuse("connection rejected, too many from one address", address, mine)
        self.total += 1
        self.by_address[address] = mine + 1
        return True

    def release(self, address: str) -> None:
        self.total -= 1
        self.by_address[address] -= 1
        if self.by_address[address] <= 0:
            del self.by_address[address]

    def _refuse(self, message: str, address: str, open_count: int) -> bool:
        """Logged once in a while: who comes decides how often this happens."""
        self._refused += 1
        now = self.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            log.warning(message, address=address, open=open_count, refused=self._refused)
            self._logged_at, self._refused = now, 0
        return False


class Listener(socket.socket):
    """A listening socket that leaves out clients that there is no room for.

    With TLS it also leaves out connections whose clients have closed them while they waited, or will soon, because
    they have waited for long: a server that falls behind would otherwise spend its time on handshakes of clients that
    are gone, and fall further behind. Without TLS a client may close its own direction and still read an answer.
    """

    has_tls = False
    waited_seconds_max = WAITED_SECONDS_MAX
    admission: Admission | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(REFUSED_AT_ONCE):
            connection, address = super().accept()
            if self.has_tls and _is_too_late(connection, self.waited_seconds_max):
                connection.close()
            elif self.admission is None:
                return connection, address
            elif self.admission.admit(str(address[0])):
                return Accepted(connection, self.admission, str(address[0])), address
            else:
                connection.close()
        raise BlockingIOError  # the event loop comes again in its next step


class Accepted(socket.socket):
    """A connection that counts until it is closed, whatever becomes of it."""

    def __init__(self, connection: socket.socket, admission: Admission, address: str) -> None:
        super().__init__(connection.family, connection.type, connection.proto, connection.detach())
        self._admission: Admission | None = admission
        self._address = address

    def close(self) -> None:
        super().close()
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.release(self._address)


def _is_too_late(connection: socket.socket, waited_seconds_max: float) -> bool:
    if not hasattr(socket, "TCP_INFO"):  # Linux has it
        return False
    found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    state, waited_milliseconds = _TCP_INFO.unpack(found)
    return bool(state == _TCP_CLOSE_WAIT or waited_milliseconds > waited_seconds_max * 1000)
