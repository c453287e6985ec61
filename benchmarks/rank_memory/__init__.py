"""What a training step takes on one of many ranks: memory by part, and the bytes of its collectives."""
