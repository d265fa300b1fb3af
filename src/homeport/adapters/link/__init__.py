"""Links between the roles.

gRPC would take part in every fork of the process and say so on stderr; we only ever spawn other programs.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
