"""Explains git's error messages: one sentence for what is wrong and one for what to do.

The rules are ordered, the first match wins: git often adds a general remark below the specific line.
"""

import re

from homeport.adapters.git.address import GitAddress, redact
from homeport.errors import GitUnavailable

WORDS_MAX = 600
"""How much of the remote's own message is passed on."""

_PROGRESS = re.compile(r"objects: |deltas: |connectivity: |references: |\d+% \(\d+/\d+\)|^(remote: )?Total \d+ ")
"""Progress lines that git prints while there is no error."""

_CREDENTIALS_HINT = (
    "Give the account that runs Homeport a credential helper or an ssh key for it, or put a token into the URL."
)

# fmt: off
RULES: tuple[tuple[str, str, str | None], ...] = (
    # what git says                                        what is wrong                        what to do
    (r"dubious ownership",                                 "belongs to another user",
     "Let its owner run Homeport, or list it in git's own setting safe.directory."),
    (r"Host key verification failed",                      "has an unknown ssh host key",
     "Connect to it once by hand with ssh, as the account that runs Homeport."),
    (r"SSL certificate|certificate verif|SSL_ERROR|TLS",   "has a certificate that is not trusted",
     "Add its authority to the system's certificates, or set git's http.sslCAInfo."),
    (r"terminal prompts disabled|Authentication failed|could not read (Username|Password)|error: 401"
     r"|Permission denied \(|Invalid username or",         "requires credentials", _CREDENTIALS_HINT),
    (r"error: 403|access denied|not allowed to",           "does not allow this account",   _CREDENTIALS_HINT),
    (r"Could not resolve host|Name or service not known|name resolution|No address associated",
                                                           "is on a host that cannot be found",
     "Check the host's name and this machine's DNS."),
    (r"Connection refused|Failed to connect|Couldn't connect|timed out|No route to host|unreachable"
     r"|unable to connect",                                "cannot be reached",
     "Check that the server runs and that this machine can reach it."),
    (r"does not appear to be a git repository|not a git repository|[Rr]epository .*not found|error: 404"
     r"|is this a git repository|does not exist|not exported",
                                                           "is not a Git repository",
     "Check the address; an empty one is made with: git init --bare PATH"),
    (r"hung up|early EOF|unexpected disconnect|Connection reset|Empty reply|RPC failed|Broken pipe",
                                                           "ended the connection",          None),
    (r"error: 5\d\d",                                      "answered with a server error",  None),
)
# fmt: on


def explain(address: GitAddress, stderr: str) -> GitUnavailable:
    """Why a fetch or push failed."""
    if address.folder is not None and not address.folder.exists():
        return GitUnavailable(
            f"The Git repository {address.shown} does not exist.",
            hint="Check the path; an empty one is made with: git init --bare PATH",
        )
    if address.folder is None:  # What git names it by may be known to this process alone, and secret.
        stderr = stderr.replace(address.url, address.shown)
    for pattern, wrong, hint in RULES:
        if re.search(pattern, stderr):
            return GitUnavailable(
                f"The Git repository {address.shown} {wrong} ({_telling_line(stderr, pattern)}).", hint=hint
            )
    return GitUnavailable(f"The Git repository {address.shown} cannot be used ({_telling_line(stderr, '')}).")


def too_slow(address: GitAddress, timeout_seconds: float) -> GitUnavailable:
    return GitUnavailable(
        f"The Git repository {address.shown} did not answer within {timeout_seconds:g} s.",
        hint="Check that the server runs and that this machine can reach it.",
    )


def refused(address: GitAddress, reason: str, stderr: str) -> GitUnavailable:
    """The remote was reached and rejects the commit: a hook, a protected branch, a full disk."""
    words = remote_words(stderr)
    said = f"{reason}: {words}" if words else reason
    hint = None
    if "currently checked out" in reason:
        hint = "It has a working tree; use a bare repository, made with: git init --bare PATH"
    return GitUnavailable(f"The Git repository {address.shown} refused the push ({said}).", hint=hint)


def remote_words(stderr: str) -> str:
    """The remote's own output, on one line."""
    lines = (line.removeprefix("remote:").strip() for line in stderr.splitlines() if line.startswith("remote:"))
    return redact(" ".join(line for line in lines if line and not _PROGRESS.search(line)))[:WORDS_MAX]


def _telling_line(stderr: str, pattern: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _PROGRESS.search(line)]
    matching = [line for line in lines if pattern and re.search(pattern, line)]
    blamed = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (matching or blamed or lines or ["git gave no reason"])[0]
    return redact(re.sub(r"^(fatal|error|remote): ", "", line)).rstrip(".")[:WORDS_MAX]
