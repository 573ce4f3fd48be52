"""The GPUs of this machine, counted once in a command that needs the number several times."""

from functools import cache

from trainplan.profiler import launch


@cache
def num_gpus() -> int:
    """As `launch.num_gpus`, whose process loads torch for a second or more."""
    return launch.num_gpus()
