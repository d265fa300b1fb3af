"""Carrying out orders."""
