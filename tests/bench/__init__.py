"""What `scripts/bench` measures: always the installed command, never one that was forked."""

import os

from tests.support import forks

os.environ[forks.VARIABLE] = forks.NONE
