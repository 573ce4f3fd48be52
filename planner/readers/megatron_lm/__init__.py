"""Megatron-LM: from the arguments of `pretrain_gpt.py` back to a job and a layout."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainplan.planner.readers.megatron_lm.reader import read
from trainplan.planner.readers.reading import Launch, Reader

PROGRAMS = frozenset({"pretrain_gpt.py"})


def recognises(launch: Launch) -> bool:
    """Is it the program that trains such models?"""
    return not launch.is_module and PurePosixPath(launch.program.text).name in PROGRAMS


MEGATRON_LM = Reader("megatron-lm", recognises, read)
