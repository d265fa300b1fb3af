"""Helm charts, on Podman without Kubernetes or in a cluster."""
