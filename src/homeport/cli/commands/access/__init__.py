"""Commands about who may do what, and where."""
