"""A training step whose weights and states lie on a drive, run by the items that price it."""
