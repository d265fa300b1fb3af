"""Models on a disk: the index, and fetching by reference. Light enough for a node."""
