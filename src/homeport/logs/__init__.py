"""Logs: what containers, jobs and roles write, from the node to its site to central, and to its readers.

`node/` collects and buffers, `site/` and `central/` store, `serving/` answers questions at both, `outputs/` sends
lines on to other systems. The rules are in `core/logs`.
"""
