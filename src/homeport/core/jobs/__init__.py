"""What jobs may ask for, their states, retries, and which node runs one. Pure."""
