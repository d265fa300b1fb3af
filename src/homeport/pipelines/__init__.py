"""The pipelines capability: steps that are jobs, inference requests, HTTP calls and other pipelines (ADR 0074)."""
