"""The part of the tunnel at a site."""
