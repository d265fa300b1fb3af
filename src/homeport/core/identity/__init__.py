"""Who may be believed: SPIFFE IDs, the rules a certificate is judged by, renewal, and one-time tokens."""
