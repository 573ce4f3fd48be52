"""Megatron-LM: its options, written and read."""

from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM as EXPORTER
