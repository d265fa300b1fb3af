"""Commands that work without a server."""
