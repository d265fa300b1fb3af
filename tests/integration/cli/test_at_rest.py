"""How often `homeport up` wakes while nothing happens, counted in timers that have fired. Each costs a battery and a
core; a loop that polls shows here by its name (ADR 0077)."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.ports import free_port

SECONDS = 6
SCRIPT = """
import asyncio, collections, json, sys
from homeport.cli.roles import running

SETTLE, SECONDS = 3, float(sys.argv[1])
fired = collections.Counter()

def place():
    frame, names = sys._getframe(2), []
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith("shared/periodic.py") and frame.f_code.co_name == "every":
            return "every: " + frame.f_locals["name"]
        if "/homeport/" in path:
            names.append(path.rpartition("/homeport/")[2] + ":" + frame.f_code.co_name)
        frame = frame.f_back
    return names[0] if names else "asyncio"

original = asyncio.BaseEventLoop.call_at
def call_at(self, when, callback, *arguments, context=None):
    origin = place()
    def run(*given):
        fired[origin] += 1
        return callback(*given)
    return original(self, when, run, *arguments, context=context)
asyncio.BaseEventLoop.call_at = call_at

class Lifetime(running.Lifetime):
    def __init__(self, on_ready):
        super().__init__(self.count)

    def count(self, *_):
        loop = asyncio.get_running_loop()
        loop.call_later(SETTLE, fired.clear)
        loop.call_later(SETTLE + SECONDS, self.show)

    def show(self):
        print("fired:", json.dumps(fired), flush=True)
        self.stop()

running.Lifetime = Lifetime
from homeport.cli.main import run
sys.exit(run(sys.argv[2:]))
"""
IN_ALL = 40
"""In `SECONDS`. It is 24; up to 35 where those of ten seconds fall into them, and while a TLS port still waits for
handshakes."""
OF_ONE = 1.5 * SECONDS


def test_nothing_polls_while_nothing_happens(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(SECONDS), "up", "--data", str(tmp_path), "--runtime", "null"]
    command += ["--http", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert "fired:" in done.stdout, done.stdout + done.stderr
    fired: dict[str, int] = json.loads(done.stdout.partition("fired:")[2].partition("\n")[0])
    assert not {place: count for place, count in fired.items() if count > OF_ONE}
    assert "every: node tunnels" not in fired, "the node in this process has no acceptance that could end"
    assert sum(fired.values()) <= IN_ALL, fired
