"""Log stores: an SQLite file of its own for one process, tables in PostgreSQL for several."""
