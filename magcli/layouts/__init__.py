"""Layouts: how public data sets and other tools name and nest what a stage reads."""
