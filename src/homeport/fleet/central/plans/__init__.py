"""What a deploy, an update or a removal would do: the plans that users see before they decide."""
