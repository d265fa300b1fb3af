"""Execs a program that is killed when its parent ends, even by SIGKILL. Run as a script.

    python -I -S die_with_parent.py PARENT_PID PROGRAM [ARGUMENT …]

The kernel does it (PR_SET_PDEATHSIG survives exec). Set here and not between fork and exec of our own process,
because ours has threads.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    import ctypes  # noqa: PLC0415 - the node imports this module for its path alone

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the call above.
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
