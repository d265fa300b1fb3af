"""Health checks and observations of containers."""
