"""The command line as an API client: connections, contexts, names, event feeds."""
