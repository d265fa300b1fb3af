"""Group commit, guarded writes and appended rows."""
