"""Measurements of a machine: what its training logs say."""
