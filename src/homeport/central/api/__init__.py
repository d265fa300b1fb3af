"""Central's own routes, one file per noun. Those that only read are in `serving`."""
