"""A discrete-event simulation of a run of `magcli rl` on a described machine, without a model.

``machine`` reads the description, ``draw`` draws groups of completions, ``engine`` decodes them, ``events`` lets
groups, verdicts and updates follow one another by the rules of ``magcli.rl.scheduler``, ``predict`` adds up what
people ask for, and ``calibrate`` takes a machine's speeds from real runs.
"""
