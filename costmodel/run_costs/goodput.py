"""Goodput: the share of the time that trains, where nodes fail and states are saved.

A run trains tau seconds between two saves, each of which stops it for d. Of n nodes one fails after
M / n seconds on average, whatever came before; then the run is down for R and goes on from the last
save that was complete. A save that goes on beside training is complete w seconds after it was
begun. In what follows lambda = n / M.

The run is a renewal process. A try of tau + d seconds ends well with p = exp(-lambda (tau + d)),
and its save counts if the next w seconds go well, too. A try lasts (1 - p) exp(lambda R) / lambda
on average, with the restart after a failure (which another may interrupt), and of each p
exp(-lambda w) tau seconds of training remain:

    goodput = lambda tau / (exp(lambda (R + w)) (exp(lambda (tau + d)) - 1))

which is 1 - d / tau - (tau / 2 + R) lambda for few failures.
Source: Young, CACM 17 (9), 1974; Daly, Future Generation Computer Systems 22 (3), 2006, section 3
(the complete model, w = 0); w derived.

With spare nodes the run is also down where more nodes are away than there are spares. Nodes fail
and come back each by itself, so of n + s nodes those that are away are binomial, with the share
of the time that one is away; what trains is the product of both.
Source: Barlow and Proschan, Mathematical Theory of Reliability, 1965, chapter 5: alternating
renewal, k of n.
"""

import math
from dataclasses import replace
from functools import lru_cache

from trainplan.costmodel.base import GB, SECONDS_PER_DAY, Identical, SpecError, long_unit
from trainplan.costmodel.candidates import Context, context_of
from trainplan.costmodel.hardware import ClusterSpec, FailureSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine, machine_of
from trainplan.costmodel.memory import mean_rank_params, mean_state_bytes
from trainplan.costmodel.spec import Spec

LEAST_FRACTION = 1e-3
"""Of the time that trains; a run that trains less is refused, as one that does not end."""


class Goodput(Spec):
    """Share of the time that trains, and where the rest goes; of a job on its cluster."""

    fraction: float
    """Of the time that trains: the run takes its steps' seconds over this."""
    saving_fraction: float
    """Of the time in which training waits for saves."""
    lost_fraction: float
    """Of the time in which was trained, or saved, what a failure undid."""
    restart_fraction: float
    """Of the time from failures until training goes on."""
    waiting_fraction: float
    """Of the time in which more nodes are away than there are spare ones."""
    save_interval_s: float
    """Seconds of training between two saves, at which `fraction` is largest."""
    checkpoint_bytes: float
    """Trained weights and optimizer states, each once."""
    stall_s: float
    """For which a save stops training."""
    stored_s: float
    """From then on until a failure no longer undoes what was saved."""
    failures_per_day: float
    """That stop the run, while it has all of its nodes."""
    lost_s_per_failure: float
    """Of all nodes: what is trained again, and the restart; without waiting for nodes."""


def goodput_of(job: Job, interval_s: float | None = None) -> Goodput | None:
    """Goodput of a job on its cluster, whatever its layout; null: nothing is stated of failures.

    It trains `interval_s` between two saves; null: as long as leaves most.
    Source: the sum at the head of this module. A save is that of `save_seconds`.
    """
    return None if job.cluster.failures is None else _goodput(Identical(job), interval_s)


def stretch_of(job: Job) -> float:
    """Seconds that pass for a second of training: 1 without failures, infinite if a run never ends.

    Source: derived, the inverse of the share of the time that trains, as the module begins.
    """
    goodput = goodput_of(job)
    if goodput is None:
        return 1.0
    return 1 / goodput.fraction if goodput.fraction >= LEAST_FRACTION else math.inf


def refuse_endless(job: Job) -> None:
    """Raise where nodes fail so often that a run does not end.

    Raises:
        SpecError: They do.
    """
    goodput = goodput_of(job)
    if goodput is None or goodput.fraction >= LEAST_FRACTION:
        return
    if is_lost_with_its_node(job):
        owner = "an island of this job" if job.islands > 1 else "this job"
        raise SpecError(
            f"a local save is in the memory of two nodes, and {owner} has one: give --save async "
            "and --checkpoint 5GB/s, or more nodes"
        )
    every, nodes = SECONDS_PER_DAY / goodput.failures_per_day, job.islands * job.cluster.num_nodes
    raise SpecError(
        f"the run does not end: one of {nodes:,} nodes fails every {lasting(every)}, "
        f"a save is safe after {lasting(goodput.stall_s + goodput.stored_s)}, and all nodes are "
        f"there {100 * (1 - goodput.waiting_fraction):.3g} % of the time: give a longer "
        "--mtbf-node, a faster --checkpoint, more --spare-nodes, or fewer nodes"
    )


def is_lost_with_its_node(job: Job) -> bool:
    """Is a save in the memory of one node alone?"""
    failures = job.cluster.failures
    return failures is not None and failures.save == "local" and job.cluster.num_nodes == 1


def lasting(value_seconds: float) -> str:
    """A time of any length, in words: 24.5 minutes."""
    size, unit = long_unit(value_seconds)
    return f"{value_seconds / size:.3g} {unit}"


@lru_cache(maxsize=256)
def _goodput(key: Identical[Job], stated_s: float | None) -> Goodput:
    job, failures = key.of, key.of.cluster.failures
    assert failures is not None
    machine = machine_of(job.cluster, job.training.precision)
    size = checkpoint_bytes(context_of(job, machine))
    stall, stored = save_seconds(failures, machine, size)
    rate, restart = failure_rate(job, failures), failures.restart_s
    interval = max(stated_s or best_interval_s(stall, rate), stored - stall)
    there = available_fraction(job.cluster, failures) ** job.islands
    trains = there * training_fraction(interval, stall, stored, restart, rate)
    if is_lost_with_its_node(job):
        trains = 0.0
    saving = trains * stall / interval
    down = there * -math.expm1(-rate * restart)
    return Goodput(
        fraction=trains,
        saving_fraction=saving,
        lost_fraction=max(0.0, there - trains - saving - down),
        restart_fraction=down,
        waiting_fraction=1 - there,
        save_interval_s=interval,
        checkpoint_bytes=size,
        stall_s=stall,
        stored_s=stored,
        failures_per_day=rate * SECONDS_PER_DAY,
        lost_s_per_failure=max(0.0, 1 - (trains + saving) / there) / rate,
    )


def checkpoint_bytes(on: Context) -> float:
    """Bytes that a run saves to go on: trained weights and states of the optimizer, each once.

    Gradients are none between steps, frozen weights are those that the run began with, and copies
    in 8 bits or fewer are made anew. The layout drops out: its ranks share the same states, of
    which each is stored once.
    Source: derived, the states of one rank that holds the whole model; Rajbhandari et al., ZeRO,
    arXiv:1910.02054, section 3.1 (16-bit weights and K = 12).
    """
    if on.job.training.casts:
        training = on.job.training.model_copy(update={"precision": "bf16"})
        on = replace(on, job=on.job.model_copy(update={"training": training}))
    rows = on.with_table(LayoutTable.of([Layout(zero_stage=3)]))
    trained = replace(mean_rank_params(rows).with_gradients, trained=None)
    return float(mean_state_bytes(rows, trained, between_steps=True)[0])


def failure_rate(job: Job, failures: FailureSpec) -> float:
    """Failures a second of all nodes of a job together, those of all islands.

    Source: derived: each node fails by itself at a constant rate, and rates add up.
    """
    return job.islands * job.cluster.num_nodes / failures.mtbf_node_s


def save_seconds(failures: FailureSpec, machine: Machine, size_bytes: float) -> tuple[float, float]:
    """Seconds for which a save stops training, and those after them until it counts.

    `sync`: all nodes write, and training waits. `async`: it waits until every GPU has copied its
    part to the host, then nodes write. `local`: then every node sends its part to another one, over
    its adapters. Parts are alike, and what is written beside training does not slow it.
    Source: derived, bytes over bytes per second; Mohan et al., CheckFreq, FAST 2021, section 4
    (snapshot and persist); Wang et al., GEMINI, SOSP 2023, section 4 (copies in the memory of other
    nodes).
    """
    written = size_bytes / ((failures.checkpoint_gb_per_s or math.inf) * GB)
    if failures.save == "sync":
        return written, 0.0
    own = size_bytes / machine.num_gpus
    copied = own / machine.host_bytes_per_second
    if failures.save == "async":
        return copied, written
    return copied, own / min(machine.nic_bytes_per_second, machine.host_bytes_per_second)


def best_interval_s(stall_s: float, rate: float) -> float:
    """Seconds of training between saves at which most is left of the time.

    Source: Daly, Future Generation Computer Systems 22 (3), 2006, the higher-order estimate; its
    first term is that of Young, CACM 17 (9), 1974. Bounded below by a second.
    """
    ratio = stall_s * rate / 2
    if ratio >= 1:
        return 1 / rate
    young = math.sqrt(2 * stall_s / rate)
    return max(1.0, young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s)


def training_fraction(
    interval_s: float, stall_s: float, stored_s: float, restart_s: float, rate: float
) -> float:
    """Share of the time that trains while all nodes are there. Source: the head of this module."""
    tried = rate * (interval_s + stall_s)
    least = rate * (restart_s + stored_s) + tried
    if least > 1 / LEAST_FRACTION:
        return 0.0
    return rate * interval_s / (math.exp(least - tried) * math.expm1(tried))


def available_fraction(cluster: ClusterSpec, failures: FailureSpec) -> float:
    """Share of the time in which no more nodes of one cluster are away than there are spare ones.

    Source: the head of this module: the binomial distribution of n + s nodes, summed to s.
    """
    spare = failures.spare_nodes
    nodes, odds = cluster.num_nodes + spare, failures.repair_s / failures.mtbf_node_s
    term = total = math.exp(-nodes * math.log1p(odds))
    for count in range(spare):
        term *= (nodes - count) / (count + 1) * odds
        total += term
    return min(1.0, max(total, LEAST_FRACTION**3))
