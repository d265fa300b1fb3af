"""Where the `homeport` command begins: Ctrl-C ends it without a word while its modules are still imported, and again
when it has finished. In between the command itself answers it. The slowest program that a deployment needs is started
before anything is imported."""

import signal
import sys

from homeport.cli.sources import deploys_a_path


def main() -> None:
    answer = signal.getsignal(signal.SIGINT)
    # In the background of a script it is ignored, and stays so.
    ends = signal.SIG_IGN if answer is signal.SIG_IGN else signal.SIG_DFL
    signal.signal(signal.SIGINT, ends)
    if deploys_a_path(sys.argv[1:]):
        from homeport.cli.local.tool_ahead import start  # noqa: PLC0415 - start-up time

        start()
    from homeport.cli.main import main as run  # noqa: PLC0415 - what takes time

    signal.signal(signal.SIGINT, answer)
    try:
        run()
    finally:
        signal.signal(signal.SIGINT, ends)
