"""Logs at central."""
