"""Commands that run a role on this machine, or prepare it for one."""
