"""The limits that a role sets for its own process."""

import subprocess
import sys

SCRIPT = """
import ctypes, sys, tempfile, threading
from homeport.adapters.system import share_malloc_arenas

if sys.argv[1] == "shared":
    share_malloc_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
begun = threading.Barrier(9)

def allocate():
    begun.wait()
    libc.malloc(10_000)
    begun.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
begun.wait()
begun.wait()
libc.fopen.restype, libc.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap nr"))
"""


def arenas(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_threads_share_the_arenas_of_the_allocator() -> None:
    assert arenas("shared") <= 2 < arenas("alone")
