"""What runs where, in which format, and whether it fits: decided before any weights are loaded or processes started."""
