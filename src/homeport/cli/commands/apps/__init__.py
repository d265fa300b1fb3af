"""Commands about apps and where they are deployed."""
