"""The zero-bubble fork of Megatron-LM: its options, written and read."""

from trainplan.planner.runtimes.megatron_zero_bubble.write import MEGATRON_ZERO_BUBBLE as EXPORTER
