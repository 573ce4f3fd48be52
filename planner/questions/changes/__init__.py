"""A question with one thing changed: options, sizes, neighbours, what would make it feasible."""
