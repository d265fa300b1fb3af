"""Shared by central and sites. It imports neither."""
