"""Rollouts: one app version delivered to many sites, in waves. `capability.py` is all that central knows of them."""
