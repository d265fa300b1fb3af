"""The private parts of grpclib that we use, in one place. An upgrade that changes one of these names fails
`test_grpclib_seam`, and is fixed here. `grpc_node` overrides how a channel opens its connection (`CHANNEL_NAMES`)."""

from typing import Any, Final

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.encoding.proto import ProtoCodec
from grpclib.events import _DispatchServerEvents
from grpclib.server import Handler

CHANNEL_NAMES: Final = ("_protocol_factory", "_create_connection", "__connect__")
CHANNEL_FIELDS: Final = ("_config", "_h2_config", "_loop", "_host", "_port", "_ssl")
CALL_FIELD: Final = "_stream"


def handler(calls: dict[str, Any]) -> Handler:
    """Answers the calls of one connection."""
    return Handler(calls, ProtoCodec(), None, _DispatchServerEvents())


def raw_stream(call: Any) -> Any:
    """The HTTP/2 stream below a call."""
    return getattr(call, CALL_FIELD)


async def open_channel(channel: Channel) -> None:
    """Connects now instead of at the first call."""
    await channel.__connect__()


def with_pings(seconds: float, timeout_seconds: float, min_seconds: float, **others: Any) -> Configuration:
    """Pings at this interval, also on an idle connection."""
    return Configuration(
        _keepalive_time=seconds,
        _keepalive_timeout=timeout_seconds,
        _http2_max_pings_without_data=0,
        _http2_min_sent_ping_interval_without_data=min_seconds,
        **others,
    )
