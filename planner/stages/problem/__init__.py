"""One layout whose layers are not split yet: all that no split of them changes."""
