"""What central and sites know of apps, deployments and sites."""
