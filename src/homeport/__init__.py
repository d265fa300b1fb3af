"""Homeport deploys containerised apps on the machines you own, from Git."""

__version__ = "0.1.0"
