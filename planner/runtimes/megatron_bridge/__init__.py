"""Megatron-Bridge: its recipes and keys, written and read."""
