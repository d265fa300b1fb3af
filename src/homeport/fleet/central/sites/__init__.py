"""Central's messages and requests to sites, through the streams that they keep open."""
