"""torchtitan: its configuration, written and read."""
