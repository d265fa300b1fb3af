"""Links between the roles."""
