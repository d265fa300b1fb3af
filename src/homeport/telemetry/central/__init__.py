"""Telemetry: the part of the central."""
