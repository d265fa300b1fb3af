"""Machine identity: SPIFFE IDs, certificate validation rules, renewal, and one-time tokens."""
