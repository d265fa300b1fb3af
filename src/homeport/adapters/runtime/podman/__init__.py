"""Podman."""
