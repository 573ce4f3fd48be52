"""Bytes of one rank: states, activations, transients, overheads."""
