"""Conversations as tokens: templates, turns, thoughts, ends, and the targets of SFT."""
