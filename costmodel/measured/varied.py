"""A machine that is not quite what the catalog or a profile says, along a few named scalars.

Each scalar but the last is the logarithm of a factor, 0 where nothing changes; `fixed_seconds` is
added to every step. What the scalars cannot say is left to the layouts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp
from types import MappingProxyType
from typing import Literal, get_args

from trainplan.costmodel.documents import Constants
from trainplan.costmodel.machine import GemmRate, Machine

ScalarName = Literal[
    "speed",
    "compute",
    "memory_bandwidth",
    "intra_node_bandwidth",
    "inter_node_bandwidth",
    "latency",
    "exposed_traffic",
    "fixed_seconds",
]
SCALARS: tuple[ScalarName, ...] = get_args(ScalarName)
"""In the order of vectors of scalars."""
MEANINGS: Mapping[ScalarName, str] = MappingProxyType(
    {
        "speed": "speed of whole steps",
        "compute": "speed of matrix products and attention",
        "memory_bandwidth": "bandwidth of device memory",
        "intra_node_bandwidth": "bandwidth between GPUs of a node",
        "inter_node_bandwidth": "bandwidth between nodes",
        "latency": "time to start kernels, collectives and messages",
        "exposed_traffic": "share of overlapped traffic that is not hidden",
        "fixed_seconds": "seconds added to every step",
    }
)
LATENCIES = (
    "launch_seconds",
    "attention_fixed_seconds",
    "inter_node_alpha",
    "inter_node_alpha_per_doubling",
    "p2p_alpha",
    "alltoall_alpha",
    "dispatch_sync_seconds",
)
EXPOSED = (
    "regather_exposed",
    "tp_overlap_exposed",
    "async_tp_exposed",
    "expert_overlap_contention",
    "first_bucket",
    "overlap_contention",
    "fsdp_contention",
)
"""Shares: a factor stops at 1."""


def varied(machine: Machine, changes: Mapping[ScalarName, float]) -> Machine:
    """The machine with some scalars changed; every node group of it alike.

    Source: derived; each scalar multiplies the rates, or the seconds, that its name says, so
    `compute` = ln 2 halves the seconds of products and `latency` = ln 2 doubles those of starts.
    """
    for name, change in changes.items():
        if change:
            machine = _CHANGES[name](machine, change if name == "fixed_seconds" else exp(change))
    groups = tuple(varied(one, changes) for one in machine.groups)
    return replace(machine, groups=groups) if groups else machine


def _speed(machine: Machine, factor: float) -> Machine:
    return replace(machine, speed=machine.speed * factor)


def _compute(machine: Machine, factor: float) -> Machine:
    def faster(rate: GemmRate) -> GemmRate:
        return replace(rate, flop_factor=rate.flop_factor / factor)

    return replace(
        machine,
        half=faster(machine.half),
        linear=faster(machine.linear),
        attention_max_efficiency=machine.attention_max_efficiency * factor,
    )


def _memory(machine: Machine, factor: float) -> Machine:
    measured = ("optimizer_bytes_per_second", "permute_bytes_per_second", "loss_bytes_per_second")
    known = {name: getattr(machine, name) for name in measured}
    return replace(
        machine,
        memory_bytes_per_second=machine.memory_bytes_per_second * factor,
        **{name: rate * factor for name, rate in known.items() if rate},
    )


def _intra(machine: Machine, factor: float) -> Machine:
    return replace(
        machine,
        bus_bytes_per_second=machine.bus_bytes_per_second * factor,
        sqrt_coefficient=machine.sqrt_coefficient / factor,
        link_bytes_per_second=machine.link_bytes_per_second * factor,
    )


def _inter(machine: Machine, factor: float) -> Machine:
    return replace(machine, nic_bytes_per_second=machine.nic_bytes_per_second * factor)


def _latency(machine: Machine, factor: float) -> Machine:
    constants = machine.constants
    slower = {name: getattr(constants, name) * factor for name in LATENCIES}
    return replace(
        machine,
        constants=constants.model_copy(update=slower),
        host_factor=machine.host_factor * factor,
        alpha_seconds=machine.alpha_seconds * factor,
    )


def _exposed(machine: Machine, factor: float) -> Machine:
    constants: Constants = machine.constants
    shares = {name: min(1.0, getattr(constants, name) * factor) for name in EXPOSED}
    window = constants.overlap_window / factor
    return replace(
        machine, constants=constants.model_copy(update={**shares, "overlap_window": window})
    )


def _fixed(machine: Machine, seconds: float) -> Machine:
    return replace(machine, fixed_overhead_seconds=machine.fixed_overhead_seconds + seconds)


_CHANGES: Mapping[ScalarName, Callable[[Machine, float], Machine]] = MappingProxyType(
    {
        "speed": _speed,
        "compute": _compute,
        "memory_bandwidth": _memory,
        "intra_node_bandwidth": _intra,
        "inter_node_bandwidth": _inter,
        "latency": _latency,
        "exposed_traffic": _exposed,
        "fixed_seconds": _fixed,
    }
)
