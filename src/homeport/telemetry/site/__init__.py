"""Telemetry: the part of the site."""
