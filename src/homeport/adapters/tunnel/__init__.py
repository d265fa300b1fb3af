"""Tunnels over TCP: streams on a connection, HTTP upgrades, WebSockets."""
