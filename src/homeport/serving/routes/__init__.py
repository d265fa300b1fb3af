"""Routes that central and sites share."""
