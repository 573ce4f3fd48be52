"""Processes that measure: how they start, find each other, go from task to task, and end."""
