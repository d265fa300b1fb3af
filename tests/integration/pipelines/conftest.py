"""A fleet for pipelines: real processes of central, a site and a node of the null runtime."""

from tests.e2e.conftest import host, node_prefix

__all__ = ["host", "node_prefix"]
