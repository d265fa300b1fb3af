"""Turns the output of engines and compose tools into one sentence. Pure."""

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
_PORT_IN_USE = re.compile(r"port (\d+) is already in use on this machine")
_PROGRAM_MISSING = re.compile(r'exec: "?([^":]+)"?:.*(?:executable file not found|no such file or directory)')
_NO_COMMAND = re.compile(r"no command or entrypoint provided|no command specified", re.IGNORECASE)
_STUMBLE = "can't get final child's PID from pipe"
_PULL_CAUSES = (
    (
        re.compile(r"manifest unknown|name unknown|manifest for .* not found|repository .* not found|404 Not Found"),
        "its registry has no such image or tag. Check the name, or push it first",
    ),
    (
        re.compile(r"short-name .* did not resolve|no unqualified-search registries"),
        "its name has no registry. Write it in full, such as docker.io/library/nginx:1.25",
    ),
    (
        re.compile(r"unauthorized|authentication required|denied|no basic auth credentials"),
        "its registry refuses access without a login, or has no such image",
    ),
    (
        re.compile(r"dial tcp (\S+): connect: connection refused"),
        r"its registry does not answer at \1. Start it, or correct the name",
    ),
    (re.compile(r"lookup (\S+) on .*: (?:no such host|server misbehaving)"), r"the host \1 cannot be found"),
    (
        re.compile(r"server gave HTTP response to HTTPS client"),
        "its registry has no TLS, and the container engine is not configured to use it without",
    ),
)
"""What engines answer, and what it means; the first that matches."""
LOCAL = "localhost/"
"""How Podman calls what was built without the name of a registry."""
_FULL = ("no space left on device", "disk quota exceeded")


def meaningful_line(output: str) -> str:
    """The line with the cause: the first error, since the later ones are its consequences; else the last line."""
    lines = [line.strip() for line in output.splitlines() if not _NOISE.search(line)]
    errors = [line for line in lines if re.search(r"\berror\b|cannot|failed|denied|invalid", line, re.IGNORECASE)]
    chosen = (errors[:1] or lines[-1:] or ["it gave no reason"])[0]
    return re.sub(r"^(?:Error|ERROR)(?: response from daemon)?: |^ERROR: for \S+ ", "", chosen)


def explain(reason: str) -> str:
    """The engine's reason as a sentence, for known causes."""
    if taken := _PORT_TAKEN.search(reason):
        return f"port {taken[1]} is already in use on this machine"
    if missing := _PROGRAM_MISSING.search(reason):
        return f'the image has no program "{missing[1]}"'
    if _NO_COMMAND.search(reason):
        return "the image has no command of its own, so one has to be given"
    return re.sub(r'^unable to start container "[0-9a-f]{12,64}": ', "", reason)


def program_missing(output: str) -> str | None:
    """A sentence in place of what an engine writes where a command cannot begin, since the container lacks its
    program; None for any other output."""
    begins = output.lstrip().startswith(("Error: ", "OCI runtime exec failed"))
    missing = _PROGRAM_MISSING.search(output) if begins else None
    return None if missing is None else f'The container has no program "{missing[1]}".'


def port_in_use(message: str) -> int | None:
    """The port that a sentence of `explain` is about."""
    taken = _PORT_IN_USE.search(message)
    return None if taken is None else int(taken[1])


def with_port_holder(message: str, holder: str) -> str:
    """The sentence of `explain`, with what uses the port."""
    return _PORT_IN_USE.sub(lambda taken: f"{taken[0]} by {holder}", message, count=1) if holder else message


def is_disk_full(reason: str) -> bool:
    return any(sign in reason.lower() for sign in _FULL)


def is_transient_start_error(reason: str) -> bool:
    """A start that runc lost on a busy machine. It says nothing about the app, and the next start succeeds."""
    return _STUMBLE in reason


def create_failed(component: str, reason: str) -> WorkFailed:
    if is_disk_full(reason):
        return disk_full(component)
    return WorkFailed(Code.CREATE_FAILED, f"{component} could not be started: {explain(reason)}", source=component)


def pull_failed(component: str, image: str, reason: str) -> WorkFailed:
    if is_disk_full(reason):
        return disk_full(component)
    if image.startswith(LOCAL):
        cause = f"images called {LOCAL}… are built on the machine itself, and this one is not there"
        return WorkFailed(Code.IMAGE_PULL_FAILED, f"The image {image} could not be pulled: {cause}", source=component)
    causes = (found.expand(text) for pattern, text in _PULL_CAUSES if (found := pattern.search(reason)))
    cause = next(causes, reason)
    return WorkFailed(Code.IMAGE_PULL_FAILED, f"The image {image} could not be pulled: {cause}", source=component)


def disk_full(component: str) -> WorkFailed:
    return WorkFailed(
        Code.DISK_FULL, f"There is no space left on this machine's disk for {component}.", source=component
    )
