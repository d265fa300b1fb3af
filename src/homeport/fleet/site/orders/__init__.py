"""Orders to nodes: from moves of a plan, sent with their secrets, timed, tried again."""
