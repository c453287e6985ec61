"""A whole pipeline as one HTML page: what its tables, runs and landscapes say, in the order of the recipe."""
