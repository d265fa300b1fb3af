"""Connecting to SQLite and PostgreSQL: engines, locks, migrations, errors."""
