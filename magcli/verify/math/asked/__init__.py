"""What a question says about its answer: the units, the form and the options, and how it writes numbers."""
