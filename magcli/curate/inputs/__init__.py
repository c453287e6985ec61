"""New inputs for the tests of code problems."""
