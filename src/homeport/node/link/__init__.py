"""The node's end of the link to its site."""
