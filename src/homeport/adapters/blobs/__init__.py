"""Content by digest: the adapters of `ports.BlobStore`."""
