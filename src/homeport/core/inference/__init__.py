"""Decisions of the inference plane: admission, order of the queue, placement, breaker. Pure."""
