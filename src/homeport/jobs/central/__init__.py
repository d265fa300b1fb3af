"""Jobs at central."""
