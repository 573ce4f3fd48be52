"""JSON Schemas of the public documents.

A document is written by a function of `cli.pages`, `cli.files` or `planner`; here it is a class of
the same keys, of the very specs and results that function dumps. A test holds what every command
prints against its schema, closed: a key that only one of both has fails there.
"""
