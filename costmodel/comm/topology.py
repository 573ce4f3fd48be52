"""Which links a group of ranks uses.

Ranks are numbered as Megatron Core does by default, inner to outer: tp, cp, dp (ep inside it), pp.
A group of `size` ranks at distance `stride` therefore has `domain / stride` members in one
scale-up domain. Source: Megatron-LM `parallel_state.py`, order "tp-cp-ep-dp-pp".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.hardware import stride_column
from costmodel.machine import Machine
from costmodel.table import FloatColumn, IntColumn


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator per row."""

    size: IntColumn
    inside: IntColumn
    """Members in one scale-up domain."""
    stride: IntColumn
    """Distance of neighbouring members."""
    nodes: FloatColumn
    """Domains it spans."""
    nic_bytes_per_second: FloatColumn
    """Sustained scale-out bandwidth of all members in one domain together."""
    fabric_seconds: FloatColumn
    """Extra latency of the switch tiers it crosses."""


def group(machine: Machine, size: IntColumn, stride: IntColumn) -> Group:
    """Links of groups of `size` ranks at distance `stride`.

    Every member drives its own rail, so a group with several members in a domain uses as many NICs.
    Source: derived; measured by NCCL's rail-aligned rings, as SimAI's nic_ratio tables show.
    """
    inside = np.clip(machine.domain_gpus // stride, 1, size)
    slowdown = np.ones(len(size))
    latency = np.zeros(len(size))
    for tier in machine.fabric:
        leaves = size * stride > tier.reach_gpus
        slowdown = np.where(leaves, np.maximum(slowdown, tier.oversubscription), slowdown)
        latency = latency + leaves * tier.latency_us * 1e-6
    nic = machine.nic_bytes_per_second * machine.constants.nic_efficiency * inside / slowdown
    return Group(size, inside, stride, size / inside, nic, latency)


def link_speed(machine: Machine, stride: IntColumn) -> FloatColumn:
    """Bytes per second of one message between two GPUs of a domain at distance `stride`.

    Source: fits of the machine.
    """
    return machine.link_bytes_per_second[stride_column(stride)]


def pipeline_neighbour(machine: Machine, pp: IntColumn, stride: IntColumn) -> FloatColumn:
    """Share of the hops between neighbouring pipeline ranks that leave a scale-up domain.

    Source: derived; with `stride` ranks per stage, one hop in `domain / stride` crosses.
    """
    crossing = np.minimum(stride / machine.domain_gpus, 1.0)
    return np.where(pp * stride > machine.domain_gpus, crossing, 0.0)
