"""The machine this runs on: processor, GPUs, clocks, and whether it still runs as it did."""
