"""What `scripts/bench` measures: always the installed command, never one that was forked, and compiled as an
installed package is. The first start after a change of the sources would otherwise measure the compiler: 1.1 s."""

import compileall
import os
from pathlib import Path

import homeport
from tests.support import forks

os.environ[forks.VARIABLE] = forks.NONE
compileall.compile_dir(Path(homeport.__file__).parent, quiet=2)
