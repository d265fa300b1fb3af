"""Pipelines, decided purely: what a file means, which step comes next, what an expression is worth."""
