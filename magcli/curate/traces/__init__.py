"""Reasoning traces for the cold start."""
