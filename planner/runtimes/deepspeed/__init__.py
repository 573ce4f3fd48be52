"""DeepSpeed: its JSON file, written and read."""
