"""The hash chain of the audit log, and the limits on what unauthenticated clients can add to it."""
