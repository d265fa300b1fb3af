"""containerd, through `ctr`."""
