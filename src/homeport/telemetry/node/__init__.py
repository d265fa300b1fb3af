"""Telemetry: the part of the node."""
