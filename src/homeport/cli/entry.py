"""Where the `homeport` command begins: Ctrl-C ends it without a word while its modules are still imported, and again
when it has finished. In between the command itself answers it."""

import signal


def main() -> None:
    answer = signal.getsignal(signal.SIGINT)
    # In the background of a script it is ignored, and stays so.
    ends = signal.SIG_IGN if answer is signal.SIG_IGN else signal.SIG_DFL
    signal.signal(signal.SIGINT, ends)
    from homeport.cli.main import main as run  # noqa: PLC0415 - what takes time

    signal.signal(signal.SIGINT, answer)
    try:
        run()
    finally:
        signal.signal(signal.SIGINT, ends)
