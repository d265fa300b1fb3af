"""Ports between the roles: what is said over each link."""
