"""Starts a native program that outlives the node, and keeps its output and its exit code. Run as a script.

    python -I -S program_keeper.py CONFIG.json
    python program_keeper.py FILE.log              as containerd starts a logger of a container's output

The first process returns once the program runs (exit 0) or has failed to (exit 1, the reason on stderr). A second
one, detached, stays as the program's parent: only it can get the exit code, and it bounds the log. It uses only the
smallest parts of the standard library, because one such process runs per program.
"""

import contextlib
import json
import os
import select
import signal
import sys

CHUNK = 65536
SECRET = "HOMEPORT_SECRET_"
"""Prefix of the variables that are passed through the keeper's own environment, because they may be in no file."""


LOG_BYTES_MAX = 10 * 1024 * 1024
"""Of a container's log; a program's is in its config."""
CONTAINER_OUTPUT = (3, 4)
CONTAINER_READY = 5
"""The descriptors of a container's output, passed by containerd, and the one to close when ready to read."""


def main() -> None:
    if sys.argv[1].endswith(".log"):
        _collect(sys.argv[1])
        return
    with open(sys.argv[1]) as file:  # noqa: PTH123 - pathlib would cost the keeper memory all its life
        config = json.load(file)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.close(read_end)
            os.setsid()
            _keep(config, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    answer = b""
    while chunk := os.read(read_end, CHUNK):
        answer += chunk
    if answer:
        sys.stderr.write(answer.decode())
        sys.exit(1)


def _keep(config: dict[str, object], write_end: int) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(config, writing, write_end)
    os.close(writing)
    try:
        _put(str(config["state"]), {"pid": pid, "start_time": start_time(pid), **config["identity"]})  # type: ignore[dict-item]
    except OSError as error:
        # The program could not be found again: it would keep running next to its successor.
        os.kill(pid, signal.SIGKILL)
        os.write(write_end, f"{error.strerror}: {config['state']}".encode())
        return
    os.close(write_end)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    _pump(pid, reading, str(config["log"]), int(str(config["log_bytes_max"])))
    _, status = os.waitpid(pid, 0)
    _put(str(config["exit"]), {"pid": pid, "exit_code": os.waitstatus_to_exitcode(status)})


def _become(config: dict[str, object], output: int, write_end: int) -> None:
    """Turns this process into the program. `write_end` closes at exec, which signals that it runs."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(str(config["workdir"]))
        command: list[str] = config["command"]  # type: ignore[assignment]
        environment: dict[str, str] = dict(config["environment"])  # type: ignore[call-overload]
        given = {name: value for name, value in os.environ.items() if name.startswith(SECRET)}
        environment.update({name[len(SECRET) :]: value for name, value in given.items()})
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(write_end, f"{error.strerror}: {error.filename or config['command']}".encode())
    os._exit(127)


def _collect(path: str) -> None:
    """Copies a container's output until both of its streams end, which they do with the container."""
    os.setsid()
    events = select.poll()
    for descriptor in CONTAINER_OUTPUT:
        events.register(descriptor, select.POLLIN)
    os.close(CONTAINER_READY)
    left = len(CONTAINER_OUTPUT)
    while left:
        for descriptor, _ in events.poll():
            if not _copy(descriptor, path, LOG_BYTES_MAX):
                events.unregister(descriptor)
                left -= 1


def _pump(pid: int, reading: int, path: str, bytes_max: int) -> None:
    """Copies output to the log until the program has ended, and kills the rest of its process group.

    Until it is reaped its pid cannot be reused, so the group is certainly its own.
    """
    events = select.poll()
    events.register(reading, select.POLLIN)
    ended = os.pidfd_open(pid)
    events.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in events.poll()}
        if ended in ready:
            break
        if not _copy(reading, path, bytes_max):
            events.unregister(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.set_blocking(reading, False)
    with contextlib.suppress(BlockingIOError):
        while _copy(reading, path, bytes_max):
            pass


def _copy(reading: int, path: str, bytes_max: int) -> bool:
    """Copies one chunk of output. A full log becomes `<log>.1`, so that at most twice `bytes_max` is kept."""
    chunk = os.read(reading, CHUNK)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        full = os.fstat(log).st_size + len(chunk) > bytes_max
        os.write(log, chunk)
        os.close(log)
        if full:
            os.replace(path, path + ".1")  # noqa: PTH105 - as above
    except OSError:
        # A full disk must not block the program on its output: these lines are lost.
        pass
    return bool(chunk)


def start_time(pid: int) -> int:
    """When a process began, in kernel ticks since boot; with the pid it identifies a process uniquely."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
        return int(file.read().rpartition(b")")[2].split()[19])


def _put(path: str, content: dict[str, object]) -> None:
    with open(path + ".new", "w") as file:  # noqa: PTH123 - as above
        json.dump(content, file)
    os.replace(path + ".new", path)  # noqa: PTH105 - as above


if __name__ == "__main__":
    main()
