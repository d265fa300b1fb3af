"""Jobs, pipelines, tasks and models."""
