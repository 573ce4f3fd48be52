"""From points to a profile: curves and their errors, stragglers, merging, coverage. Pure."""
