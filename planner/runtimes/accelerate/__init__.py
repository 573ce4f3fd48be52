"""Accelerate: its YAML file, written and read."""

from trainplan.planner.runtimes.accelerate.write import ACCELERATE as EXPORTER
