"""Seconds on the wire."""
