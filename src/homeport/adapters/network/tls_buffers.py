"""How much memory each TLS connection takes."""

from asyncio.sslproto import SSLProtocol
from typing import Final

TLS_BUFFER_BYTES: Final = 16 * 1024 + 261
"""One TLS record, the largest there is. asyncio allocates 256 KiB for every connection, a quarter of a gigabyte for
1,000 machines that send a few bytes now and then. It has no parameter for it, only an attribute of the whole
process."""


def use_small_tls_buffers() -> None:
    """For the connections that are made from now on."""
    SSLProtocol.max_size = TLS_BUFFER_BYTES
