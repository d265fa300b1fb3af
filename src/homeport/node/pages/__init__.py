"""Health, readiness and metrics over HTTP."""
