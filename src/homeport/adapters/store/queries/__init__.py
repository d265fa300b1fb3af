"""The queries, one module per noun."""
