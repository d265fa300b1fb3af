"""Jobs at a site, which decides about them."""
