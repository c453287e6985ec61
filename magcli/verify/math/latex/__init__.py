"""Answers in LaTeX or plain text, read into trees: wrappers, tokens, expressions, structures."""
