"""Templates of user files."""
