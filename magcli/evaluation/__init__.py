"""Evaluation suites, metrics with intervals, and comparisons of models."""
