"""Engines: what a component says of itself, what its machine lacks, how it is brought up and handed over. Pure."""
