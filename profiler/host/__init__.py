"""The machine this runs on: processor, GPUs, clocks, and whether it still runs as it did.

SpeedProbe: the fixed product on this rank, and how long it took so far.
speed_probe: the probe of this rank, timed for the first time.
CAP_SECONDS: longest time of one measurement in s.
changes: what differs from the usual after tasks of an item, of all ranks in a sentence or two.
contention_now: a sentence where others leave a host less than is measured.
DeviceClock: the clock of one rank.
file_system: type of the file system a path is on, `ext4`.
IN_MEMORY: their files are pages of the cache and nothing else.
Meter: a function that reads power, clock and temperature of a GPU.
gpu_meter: reads the GPU of this process.
NOISE: how notes of it begin.
QUICK_CAP_SECONDS: the same under `--quick`.
Reading: what the driver reports at one moment.
slow_ranks: ranks that are slower than the others from the start on.
State: how a rank runs compared with the usual of this run.
this_host: the host of this process, `system` being the root of what it is read from.
this_software: versions of this process.
usable_cores: cores that containers and job schedulers leave to this process.
visible_gpus: the GPUs of this machine.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.profiler.host.clock import CAP_SECONDS, QUICK_CAP_SECONDS, DeviceClock
    from trainplan.profiler.host.machine import (
        IN_MEMORY,
        file_system,
        this_host,
        this_software,
        usable_cores,
    )
    from trainplan.profiler.host.meter import Meter, Reading, gpu_meter
    from trainplan.profiler.host.probe import (
        NOISE,
        SpeedProbe,
        State,
        changes,
        contention_now,
        slow_ranks,
        speed_probe,
    )
    from trainplan.profiler.host.visible import visible_gpus
else:
    __getattr__ = door(__name__)
