"""Protobuf's pure-Python messages are not loaded, and would work if they were needed."""

import os
import subprocess
import sys

import pytest

WRITES_AND_READS = """
import sys
import homeport.wire.nodes
from homeport.wire.v1 import nodes_pb2
loaded = "google.protobuf.text_format" in sys.modules
sent = nodes_pb2.HeartbeatRequest(node_id="n").SerializeToString()
assert nodes_pb2.HeartbeatRequest.FromString(sent).node_id == "n"
from google.protobuf.internal import api_implementation, python_message
assert callable(python_message.GeneratedProtocolMessageType)
print(api_implementation.Type(), loaded)
"""


@pytest.mark.parametrize(("implementation", "found"), [("upb", "upb False"), ("python", "python True")])
def test_messages_work_and_what_they_do_not_use_is_not_loaded(implementation: str, found: str) -> None:
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    done = subprocess.run(
        [sys.executable, "-c", WRITES_AND_READS], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == found
