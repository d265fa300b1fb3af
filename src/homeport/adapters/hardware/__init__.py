"""What a machine says about itself: its GPUs, its use, and that of single processes."""
