"""Ranks that stop: heartbeats of each, read by the process that ends them all."""
