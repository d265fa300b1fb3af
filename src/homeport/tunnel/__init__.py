"""A capability: reaching what runs behind a NAT, over connections that were opened upwards (ADR 0064)."""
