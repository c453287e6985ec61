"""The tensors of a model folder: read, written, sliced, merged and proved."""
