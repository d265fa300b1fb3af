"""Whether this machine can run containers, for `homeport doctor`."""
