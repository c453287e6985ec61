"""Episodes: the turns of a model and of an environment, such as a tool, in turn.

``magcli.verify.environment`` says what an environment is.
"""
