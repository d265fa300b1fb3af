"""Compose components on an engine with the Docker-compatible API."""
