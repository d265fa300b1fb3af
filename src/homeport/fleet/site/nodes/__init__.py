"""The nodes of a site: who is there, their streams, their problems, and what they hold."""
