"""Log lines: their form, how output becomes one, limits, gaps, and which of them a query wants. Pure."""
