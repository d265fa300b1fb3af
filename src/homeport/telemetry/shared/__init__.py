"""Telemetry: what sites and central both use."""
