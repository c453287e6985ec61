"""New weights on their way from a trainer to an engine."""
