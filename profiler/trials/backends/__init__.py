"""What launches a trial, one module each.

To add one: a module with its `Backend`, and its line in `BACKENDS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.profiler.trials.backends.local import Local, template
from trainplan.profiler.trials.backends.slurm import Slurm
from trainplan.profiler.trials.run import Backend

BACKENDS: Mapping[str, Backend] = MappingProxyType({"local": Local(), "slurm": Slurm()})
"""Backend of every name; a command of the user's is one more: `template`."""
