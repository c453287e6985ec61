"""A discrete-event simulation of a `magcli rl` run on a described machine, without a model.

``machine`` reads the description, ``workload`` draws groups and the lengths of their completions, ``simulation``
decodes them and applies the rules of ``magcli.rl.scheduler`` to groups, verdicts and updates, and ``predict`` computes
the figures that are reported, also of machines whose speeds it fits to real runs.
"""
