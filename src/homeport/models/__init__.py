"""Models and the engines that serve them: catalog, fetching, provisioning, handoff."""
