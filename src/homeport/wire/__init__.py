"""Messages between the roles."""

from homeport.wire.lean_protobuf import leave_out_pure_python

leave_out_pure_python()
