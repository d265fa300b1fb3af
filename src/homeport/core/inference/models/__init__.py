"""Models: where they come from, what their files must hash to, whether they may be used. Pure."""
