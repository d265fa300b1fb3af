"""Every adapter of an inference engine behaves alike, the fake included."""
