"""One code problem as two: in Python and in C++."""
