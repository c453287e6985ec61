"""Whether two trees are the same answer: values at points, regions of the real line, relations, structures."""
