"""Families by `model_type`: what the code of each fixes next to its `config.json`."""
