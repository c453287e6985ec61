"""Processes on one machine or many, placed and watched by Ray Core. The only package that imports ray."""
