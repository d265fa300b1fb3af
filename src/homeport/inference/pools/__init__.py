"""Pools, their replicas, and what is known about each."""
