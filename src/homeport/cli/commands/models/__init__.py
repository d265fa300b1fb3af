"""Commands about models, their engines and inference tasks."""
