"""The part of the tunnel at central."""
