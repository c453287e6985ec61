"""C++ versions of code problems whose tests call a Python function."""
