"""What a site reports to central: queued with the change itself, sent in order, or replaced by a full resync."""
