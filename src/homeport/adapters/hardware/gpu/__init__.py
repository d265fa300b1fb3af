"""GPUs, through their manufacturers' own tools: one module for each manufacturer."""
