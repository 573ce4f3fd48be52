"""Families by `model_type`: what the code of each fixes beside its `config.json`."""
