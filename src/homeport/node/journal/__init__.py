"""The node's durable journal."""
