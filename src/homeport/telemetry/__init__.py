"""A capability: what machines and containers use, measured at nodes, kept at sites, asked for at central."""
