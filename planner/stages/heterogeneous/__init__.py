"""Splits of layers where pipeline ranks live in unlike node groups."""
