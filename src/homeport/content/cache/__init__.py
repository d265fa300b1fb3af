"""A site's cache of content: components, charts, images and models, by digest (ADR 0055)."""
