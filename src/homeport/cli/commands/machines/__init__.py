"""Commands about sites, nodes and the fleet as a whole."""
