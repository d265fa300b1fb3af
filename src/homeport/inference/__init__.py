"""The task plane: `/v2`, `/v1`, queues, placement, streams, sessions, artifacts. The same at central and at sites."""
