"""What adapters share about files: watching them, reading what others wrote within bounds, full disks."""
