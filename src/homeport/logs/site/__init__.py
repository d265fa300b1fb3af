"""Logs at a site."""
