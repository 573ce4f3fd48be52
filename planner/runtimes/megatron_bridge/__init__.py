"""Megatron-Bridge: its recipes and keys, written and read."""

from trainplan.planner.runtimes.megatron_bridge.write import MEGATRON_BRIDGE as EXPORTER
