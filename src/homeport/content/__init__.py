"""The content of deployments: components, charts, images. Addressed by digest, served by central."""
