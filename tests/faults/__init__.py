"""Real faults, as in reference lists F1 to F13: kills, cuts, loss, full disks, bad bytes, wrong clocks."""
