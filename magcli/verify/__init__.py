"""Rewards that can be verified: format, math answers, language, and the processes that grade."""
