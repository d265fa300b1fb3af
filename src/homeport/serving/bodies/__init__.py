"""The HTTP bodies that central and sites share, by what they are about."""
