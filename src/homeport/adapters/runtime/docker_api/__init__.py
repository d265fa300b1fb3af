"""The Docker-compatible API of Docker and Podman."""
