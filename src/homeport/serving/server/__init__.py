"""The web server: sockets, connections, limits, event streams."""
