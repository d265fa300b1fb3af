"""Commands that show what happened, and reach into a container."""
