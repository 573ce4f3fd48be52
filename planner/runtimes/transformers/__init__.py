"""The Trainer of transformers: its script, and the file of its arguments, written and read."""

from trainplan.planner.runtimes.transformers.write import TRANSFORMERS as EXPORTER
