"""The built-in registry: OCI Distribution 1.1 over a `BlobStore` (ADR 0051)."""
