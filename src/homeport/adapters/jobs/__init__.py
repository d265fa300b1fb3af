"""What runs jobs: containers through the Docker-compatible API, native commands, and nothing at all."""
