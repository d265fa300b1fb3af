"""Commands about work that runs to completion."""
