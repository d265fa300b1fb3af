"""Running a role from the command line."""
