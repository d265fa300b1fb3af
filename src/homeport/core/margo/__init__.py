"""Decisions of the Margo management interface (1.0.0-rc.3), for both ends: no I/O, no clock."""
