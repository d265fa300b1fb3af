"""At a site: the replicas of its nodes."""
