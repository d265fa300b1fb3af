"""What has passed through a tunnel, for metrics."""

from homeport.lazy_dataclass import dataclass


@dataclass(slots=True)
class TunnelCounts:
    opened: int = 0
    """Streams, also those that were refused."""
    refused: int = 0
    resets: int = 0
    """Streams that ended before both ends had sent their last."""
    sent_bytes: int = 0
    """With what the tunnel adds to the bytes of its streams."""
    received_bytes: int = 0

    def add(self, other: "TunnelCounts") -> None:
        self.opened += other.opened
        self.refused += other.refused
        self.resets += other.resets
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
