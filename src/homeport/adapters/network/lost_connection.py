"""What aiohttp raises when a peer cannot be reached or goes away."""

from typing import Final

import aiohttp

LOST: Final = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError)
"""A RuntimeError too: aiohttp raises one when a connection closes between two reads of its body."""
