"""Measurements of nodes and their containers: names, windows of points, reduction, and heartbeat intervals."""
