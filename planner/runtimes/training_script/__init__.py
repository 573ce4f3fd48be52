"""Training scripts of a user's own, which several runtimes run."""
