"""Running other programs: finding them, their environment, their output and their exit."""
