"""Jobs on a node, which runs them."""
