"""Which layout to run next, and when to stop: belief, choice, loop and a simulated machine."""
