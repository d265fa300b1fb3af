"""Walks a guide: runs the commands of a page in one shell, in their order, as a person would type them.

What a page names and a test does not have (`registry.example`, `press-hall`, the port 8080) is replaced; what cannot
be run here is left out, and the test says why. Both have to occur in the page, so that a test follows its page.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.forks import COMMAND
from tests.support.guides import ROOT, Command, commands
from tests.support.processes import Machine

SECONDS_MAX = 180.0
LONG = pytest.mark.skipif(
    os.environ.get("HOMEPORT_GUIDES") != "long", reason="it takes long, and has a target of its own: make guides"
)
FOLLOWS = re.compile(r"--watch|(?<!\S)-f(?!\S)|port-forward|rollouts watch|homeport top\s+#")
SERVES = re.compile(r"^homeport (central|site|node|up) ")
MARK = "\x1e"
SHELL = r"""
trap 'for each in $served; do kill -TERM "$each" 2>/dev/null; done; wait' EXIT
follow() {  # what would go on until Ctrl-C ends after its first output, or when it had ten seconds for some
    # Emptied here and not by the command: what an earlier one left would end this one before it is begun. A shell
    # that was forked and has not yet become the command takes a SIGTERM as its own: it runs the trap on EXIT, which
    # ends the roles, or loses the signal (one in some hundred), and then this would wait for a command for ever.
    : > "$WALK/followed"
    "$@" >> "$WALK/followed" 2>&1 & local process=$! rounds=0
    until [ -s "$WALK/followed" ] || [ $rounds = 100 ] || ! kill -0 $process 2>/dev/null; do
        sleep 0.1; rounds=$((rounds + 1))
    done
    kill -TERM $process 2>/dev/null; rounds=0
    while kill -0 $process 2>/dev/null; do
        if [ $rounds = 50 ]; then
            cat "$WALK/followed"; echo "It went on for five seconds after SIGTERM:"
            cat "/proc/$process/wchan" "/proc/$process/status"; kill -KILL $process; return 97
        fi
        sleep 0.1; rounds=$((rounds + 1))
    done
    wait $process; local code=$?
    cat "$WALK/followed"; [ $code = 143 ] || return $code
}
serve() {  # a role in a terminal of its own
    local log="$WALK/served-$RANDOM"
    "$@" > "$log" 2>&1 & local process=$!
    served="$served $process"
    until grep -q " is up" "$log" || ! kill -0 $process 2>/dev/null; do sleep 0.1; done
    cat "$log"; kill -0 $process
}
"""


@dataclass(frozen=True, slots=True)
class Done:
    command: Command
    code: int
    output: str


@dataclass(frozen=True)
class Guide:
    """A page, and what a test knows about its commands. The keys of `left_out`, `exits` and `before` are the
    beginnings of commands, as they stand in the page."""

    page: str
    replaced: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    """Commands of the test itself, which come first: what the page takes for granted."""
    follows: tuple[str, ...] = ()
    """Commands that are left after their first output, besides those that go on until Ctrl-C."""

    @property
    def commands(self) -> list[Command]:
        return [each for each in commands(ROOT / self.page) if not self._named(self.left_out, each)]

    def check(self) -> None:
        """Everything that the test says about the page is still about something in it."""
        every = list(commands(ROOT / self.page))
        for key in (*self.left_out, *self.exits, *self.before, *self.follows):
            assert any(each.text.startswith(key) for each in every), f"{self.page} has no command  {key}"
        for old in self.replaced:
            assert any(old in each.text for each in self.commands), f"{self.page} says nothing about  {old}"

    def script(self) -> str:
        lines = [SHELL]
        for command in self.commands:
            for key, first in self.before.items():
                if command.text.startswith(key):
                    lines.append(f"{first}\n[ $? = 0 ] || exit 99")
            text = command.text
            for old, new in self.replaced.items():
                text = text.replace(old, new)
            if SERVES.match(text):
                text = f"serve {text}"
            elif FOLLOWS.search(text) or command.text in self.follows:
                text = f"follow {text}"
            lines.append(f"printf '{MARK}{command.line}\\n'\n{text}\nprintf '\\n{MARK}%s\\n' $?")
        return "\n".join(lines)

    def exit_of(self, command: Command) -> int:
        return next((code for key, code in self.exits.items() if command.text.startswith(key)), 0)

    def _named(self, names: Mapping[str, str], command: Command) -> bool:
        return any(command.text.startswith(each) for each in names)


def walk(guide: Guide, host: Machine, folder: Path, **environment: str) -> dict[str, str]:
    """Runs it. Gives what each command printed, by the command as it stands in the page; fails with the command that
    ended with another exit code than it should."""
    guide.check()
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        **host.clean_environment(),
        "HOMEPORT_URL": host.url,
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
        "WALK": str(folder),
        **environment,
    }
    process = subprocess.Popen(
        ["bash", "-c", guide.script()],
        cwd=folder,
        env=own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        raise AssertionError(f"{guide.page} did not end; it was at:\n{printed[-3000:]}") from None
    done = _told(guide, printed)
    for each in done:
        expected = guide.exit_of(each.command)
        assert each.code == expected, (
            f"{each.command.place}  {each.command.text}\nended with {each.code}, not {expected}:\n{each.output}"
        )
    assert len(done) == len(guide.commands), f"{guide.page} stopped after:\n{printed[-3000:]}"
    return {each.command.text.partition("  #")[0].strip(): each.output for each in done}


def _told(guide: Guide, printed: str) -> list[Done]:
    """Marks come in pairs: the line before a command, the exit code after it."""
    parts = printed.split(MARK)[1:]
    done = []
    for command, begun, ended in zip(guide.commands, parts[0::2], parts[1::2], strict=False):
        done.append(Done(command, int(ended.split("\n", 1)[0]), begun.partition("\n")[2]))
    return done
