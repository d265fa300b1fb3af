"""Tokens, secrets, machines and the audit trail."""
