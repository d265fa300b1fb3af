"""Keeps protobuf's pure-Python messages out of memory. Its package imports them and, where it has its compiled ones,
never uses them: 1.9 MB with what they import in turn, a twentieth of a node.

The module is put into its place without being run; whoever uses it after all runs it by that. Protobuf has no option
for this, and the name is private. Where a release has another one, nothing happens but that it is imported, and
`test_lean_protobuf` says so.
"""

import importlib.util
import sys
from typing import Final

PACKAGE: Final = "google.protobuf.internal"
MODULE: Final = "python_message"


def leave_out_pure_python() -> None:
    """Before anything of protobuf is imported."""
    name = f"{PACKAGE}.{MODULE}"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    # An import looks for it here first. One that found it in `sys.modules` alone would run it.
    setattr(sys.modules[PACKAGE], MODULE, module)
