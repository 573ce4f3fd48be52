"""torchtitan: its configuration, written and read."""

from trainplan.planner.runtimes.torchtitan.write import TORCHTITAN as EXPORTER
