"""The embedded engine: continuous batching in this process, on torch alone."""
