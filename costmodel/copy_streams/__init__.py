"""Work of a step on copy streams, CPUs, drives and the network, overlapped with that of the GPU.

A lane does one piece of work at a time. `transfer_volume` has the lanes and the least time they
need, `work` the items, their longest path and when each runs, `placement` what lies where, how fast
it moves and what runtimes copy when, `methods` the methods of papers. Nothing of ours but the base
is imported: what a layer costs comes in as columns.

binding: seconds of each lane on the longest path of one row.
deepspeed_offload_policy: what DeepSpeed copies when, by ZeRO stage and options.
floor_of_step: least seconds of a step by row, for a search.
fsdp2_offload_policy: what FSDP2 with CPUOffloadPolicy copies when.
Item: one piece of work of one lane: its seconds, and the items it comes after.
Lane: GPU, host to GPU, GPU to host, CPU, drive read, drive write, network.
megatron_offload_policy: what Megatron-LM with `--optimizer-cpu-offload` copies when.
Method: a published way to offload: its policy, placement, program and bytes a parameter.
METHODS: published methods by name.
Offloaded: a step of some rows: quantities, speeds, placement and offload policy.
OffloadPolicy: what a runtime copies, when, and what it waits for.
Part: items that are done some rounds, and how rounds wait for each other.
Place: device, host or drive.
Placement: what of a step's states lies where: shares and places by row.
powered: a matrix to a power in the algebra of (max, +), applied to a state in seconds.
Quantities: seconds, bytes and parameters of one rank's step by row, if all lies on the device.
seconds_of_step: seconds of a step by row: the longest path.
serial_added_seconds: seconds an offloaded update adds where nothing overlaps it.
Span: start and end (seconds) of an item that ran, and what it waited for.
Speeds: bytes and parameters a second of one GPU's share of links, drives and CPUs.
STATE_BYTES: bytes of Adam's states a parameter that move to the GPU and back: 12.
step_work: a step of one row as items.
timeline: start and end of every item of one row.
Work: items of a step of one rank: least seconds, longest path, seconds by lane.
"""

from trainplan.costmodel.copy_streams.dependency_rounds import powered
from trainplan.costmodel.copy_streams.methods import METHODS, Method
from trainplan.costmodel.copy_streams.offloaded_step import (
    STATE_BYTES,
    floor_of_step,
    seconds_of_step,
    serial_added_seconds,
    step_work,
)
from trainplan.costmodel.copy_streams.placement import (
    Offloaded,
    OffloadPolicy,
    Place,
    Placement,
    Quantities,
    Speeds,
    deepspeed_offload_policy,
    fsdp2_offload_policy,
    megatron_offload_policy,
)
from trainplan.costmodel.copy_streams.transfer_volume import Lane
from trainplan.costmodel.copy_streams.work import Item, Part, Span, Work, binding, timeline
