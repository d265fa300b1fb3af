"""A tunnel inside a WebSocket (RFC 6455), which passes the proxies that people have in front of central: one binary
message for each write."""

from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol, State

from homeport.core.tunnel.frames import TunnelProtocolError
from homeport.core.tunnel.mux import BUDGET_BYTES


class WebSocketCodec:
    """`connection.Codec` after the handshake."""

    def __init__(self, *, is_client: bool) -> None:
        self._protocol = Protocol(CLIENT if is_client else SERVER, state=State.OPEN, max_size=BUDGET_BYTES)

    def encode(self, data: bytes) -> bytes:
        if self._protocol.state is not State.OPEN:
            return b""
        self._protocol.send_binary(data)
        return b"".join(self._protocol.data_to_send())

    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        self._protocol.receive_data(data)
        parts: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                raise TunnelProtocolError("a text message")
            if isinstance(event, Frame) and event.opcode in {Opcode.BINARY, Opcode.CONT}:
                parts.append(bytes(event.data))
        if self._protocol.parser_exc is not None:
            raise TunnelProtocolError(str(self._protocol.parser_exc))
        return b"".join(parts), b"".join(self._protocol.data_to_send())

    def farewell(self) -> bytes:
        if self._protocol.state is not State.OPEN:
            return b""
        try:
            self._protocol.send_close(1000)
        except WebSocketException:
            return b""
        return b"".join(self._protocol.data_to_send())
