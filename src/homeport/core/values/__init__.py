"""Values that people write and compare: durations, selectors, patterns, addresses."""
