"""Megatron-LM: its options, written and read."""
