"""The HTTP bodies that central and sites share, one module per subject."""
