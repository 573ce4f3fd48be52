"""The module for PyTorch FSDP2 that is written whole."""

from trainplan.planner.runtimes.fsdp2.write import FSDP2 as EXPORTER
