"""Ways to launch a trial, one module each.

To add one: a module with its `Way`, and its line in `WAYS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.profiler.trials.run import Way
from trainplan.profiler.trials.ways.local import Local, template
from trainplan.profiler.trials.ways.slurm import Slurm

__all__ = ["WAYS", "template"]

WAYS: Mapping[str, Way] = MappingProxyType({"local": Local(), "slurm": Slurm()})
"""Way of every name; a command of the user's is one besides: `template`."""
