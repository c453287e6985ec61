"""Programs judged on tests, in the sandbox."""
