"""Turns what engines and compose tools print into one sentence for a person. Pure."""

import re

from homeport.errors import WorkFailed
from homeport.vocabulary import Code

_NOISE = re.compile(
    r"^(time=|failed to connect to syslog|Trying to pull|Traceback|\s|INFO:|DEBUG:|WARNING:|See '|$)"
    r"|no container with name or ID"
    r"|\.\.\.\s*(error|done|started)?$"
    r"|Encountered errors while bringing up the project"
    r"|^[0-9a-f]{12,64}$"
)
_PORT_TAKEN = re.compile(
    r"(?:listen|bind for|Bind for)[^:]*?\S*?:(\d+)\b.*(?:address already in use|port is already allocated)"
)
_PROGRAM_MISSING = re.compile(r'exec: "?([^":]+)"?:.*(?:executable file not found|no such file or directory)')
_STUMBLE = "can't get final child's PID from pipe"
_FULL = ("no space left on device", "disk quota exceeded")


def meaningful_line(output: str) -> str:
    """The line that says why: the first error, since the later ones are its consequences; else the last word."""
    lines = [line.strip() for line in output.splitlines() if not _NOISE.search(line)]
    errors = [line for line in lines if re.search(r"\berror\b|cannot|failed|denied|invalid", line, re.IGNORECASE)]
    chosen = (errors[:1] or lines[-1:] or ["it gave no reason"])[0]
    return re.sub(r"^(?:Error|ERROR)(?: response from daemon)?: |^ERROR: for \S+ ", "", chosen)


def explain(reason: str) -> str:
    """The engine's reason as a sentence, where we know what it means to a person."""
    if taken := _PORT_TAKEN.search(reason):
        return f"port {taken[1]} is already in use on this machine"
    if missing := _PROGRAM_MISSING.search(reason):
        return f'the image has no program "{missing[1]}"'
    return re.sub(r'^unable to start container "[0-9a-f]{12,64}": ', "", reason)


def is_disk_full(reason: str) -> bool:
    return any(sign in reason.lower() for sign in _FULL)


def is_stumble(reason: str) -> bool:
    """A start that runc lost on a busy machine. It says nothing about the app, and the next start goes well."""
    return _STUMBLE in reason


def create_failed(component: str, reason: str) -> WorkFailed:
    if is_disk_full(reason):
        return disk_full(component)
    return WorkFailed(Code.CREATE_FAILED, f"{component} could not be started: {explain(reason)}", source=component)


def pull_failed(component: str, image: str, reason: str) -> WorkFailed:
    if is_disk_full(reason):
        return disk_full(component)
    return WorkFailed(Code.IMAGE_PULL_FAILED, f"The image {image} could not be pulled: {reason}", source=component)


def disk_full(component: str) -> WorkFailed:
    return WorkFailed(
        Code.DISK_FULL, f"There is no space left on this machine's disk for {component}.", source=component
    )
