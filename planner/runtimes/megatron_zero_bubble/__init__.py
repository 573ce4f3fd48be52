"""The zero-bubble fork of Megatron-LM: its options, written and read."""
