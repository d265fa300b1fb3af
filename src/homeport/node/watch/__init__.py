"""Keeping what was installed running."""
