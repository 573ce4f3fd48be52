"""Accelerate: its YAML file, written and read."""
