"""Pipelines at central."""
