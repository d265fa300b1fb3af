"""Answers questions about logs, the same at central and at a site."""
