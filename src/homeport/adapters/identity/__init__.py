"""Keys, certificates and TLS. Nodes import this too, so it needs only `cryptography` and the standard library."""
