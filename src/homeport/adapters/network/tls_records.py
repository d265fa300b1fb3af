"""asyncio's TLS for the connections of a server, with less work for a request and an answer of one record each.

asyncio asks for one more record after each, which is an exception when there is none, and looks twice whether
something is to be sent. Most requests are one record, and so are most answers: polls of ten thousand machines. What
is not so simple is left to asyncio's own methods, which these replace. A handshake that fails sends its alert. Where
another Python calls them by other names, they are not called, and everything is as asyncio does it.
"""

import ssl
from asyncio import sslproto
from collections.abc import Sequence
from typing import Any, Final

from homeport.adapters.network.tls_buffers import TLS_BUFFER_BYTES

_ASYNCIO: Any = sslproto.SSLProtocol
_WRAPPED: Final = sslproto.SSLProtocolState.WRAPPED
_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLSyscallError)


class TlsRecords(_ASYNCIO):  # type: ignore[misc]
    max_size = TLS_BUFFER_BYTES
    """A whole record: after it is read, nothing of it is left in the TLS library."""

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if isinstance(handshake_exc, ssl.SSLError) and (alert := self._outgoing.read()):
            # Why the handshake failed, which asyncio throws away: a client then only sees the connection end.
            self._transport.write(alert)
        super()._on_handshake_complete(handshake_exc)

    def _do_read(self) -> None:
        is_simple = self._state is _WRAPPED and not self._app_protocol_is_buffer
        if not is_simple or self._app_reading_paused or self._write_backlog:
            super()._do_read()
            return
        try:
            self._do_read__copied()
            if self._write_backlog or self._outgoing.pending:
                self._do_write()
            self._control_ssl_reading()
        except Exception as error:  # noqa: BLE001 - as asyncio does
            self._fatal_error(error, "Fatal error on SSL protocol")

    def _do_read__copied(self) -> None:
        records: list[bytes] = []
        record = b"not the end"
        try:
            while record := self._sslobj.read(self.max_size):
                records.append(record)
                if not self._incoming.pending:
                    break
        except _AGAIN:
            pass
        if records:
            self._app_protocol.data_received(records[0] if len(records) == 1 else b"".join(records))
        if not record:
            self._call_eof_received()
            self._start_shutdown()

    def _write_appdata(self, list_of_data: Sequence[bytes]) -> None:
        if self._state is not _WRAPPED or self._write_backlog or len(list_of_data) != 1:
            super()._write_appdata(list_of_data)
            return
        (data,) = list_of_data
        try:
            count = self._sslobj.write(data)
            if count == len(data):
                self._process_outgoing()
                return
        except _AGAIN:
            count = 0
        except Exception as error:  # noqa: BLE001 - as asyncio does
            self._fatal_error(error, "Fatal error on SSL protocol")
            return
        super()._write_appdata([data[count:]])
