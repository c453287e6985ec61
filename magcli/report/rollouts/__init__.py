"""The page of a run's rollouts, or of any table of completions: one HTML file with its rows inside, compressed.

``rows`` reads the tables, ``index`` collects what the page filters and sorts by, ``packing`` and ``vocabulary`` turn
texts and tokens into the chunks that the page decodes when it needs them, ``page`` writes them.
"""
