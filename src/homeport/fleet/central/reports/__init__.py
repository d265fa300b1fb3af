"""Reports of sites: processed in order, once, and applied in batches."""
