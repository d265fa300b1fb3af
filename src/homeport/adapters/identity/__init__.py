"""Keys, certificates and TLS. The node imports this too, so it needs `cryptography` and the standard library only."""
