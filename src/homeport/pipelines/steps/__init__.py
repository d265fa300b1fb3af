"""The kinds of steps, one module each. Another kind is another module, a line in `kinds.py` and in the schema."""
