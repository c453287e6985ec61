"""Engines in processes of the cluster."""
