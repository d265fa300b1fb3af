"""Tasks: admission, scheduling, running, recovery."""
