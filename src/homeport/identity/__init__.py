"""Enrolment, the list of accepted machines, access tokens, the audit trail."""
