"""DeepSpeed: its JSON file, written and read."""

from trainplan.planner.runtimes.deepspeed.write import DEEPSPEED as EXPORTER
