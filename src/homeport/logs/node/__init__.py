"""Logs at a node. Imports nothing that a node must not load."""
