"""Streams, width, time limit, progress, and processes that share a search.

Nothing is imported here, so that `plan --help` stays quick.
"""
