"""Jobs: commands in containers, or of a machine, that run to completion."""
