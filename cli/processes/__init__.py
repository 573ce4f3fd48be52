"""Processes that share the work of a search."""
