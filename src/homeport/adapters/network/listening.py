"""Which program listens on a port of this machine."""

from typing import Any


def holder_of(port: int) -> str:
    """`python3 (pid 4711)`, or nothing when the system does not tell."""
    import psutil  # noqa: PLC0415 - start-up time

    try:
        for connection in psutil.net_connections(kind="tcp"):
            address: tuple[Any, ...] = connection.laddr
            listens = connection.status == psutil.CONN_LISTEN and address[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""
