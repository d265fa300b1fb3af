"""The names and texts of Orchion's API, converted to and from ours."""
