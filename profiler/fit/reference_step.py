"""The step of training by which measurements are judged: what part of it does each sort set?"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.calibration import Measured, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware import ClusterSpec, NodeGroup
from trainplan.costmodel.job import Job, Precision, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.measured import measured_links
from trainplan.costmodel.presets import preset
from trainplan.costmodel.profiles import LayerPoint, Origin, ProductPoint, Profile
from trainplan.costmodel.step import explicit
from trainplan.profiler.fit.coverage import KnownQuantity, coverage
from trainplan.profiler.fit.merge import spec_of
from trainplan.profiler.fit.quantities import ERRORS, QUANTITIES


def cluster_of(profile: Profile) -> ClusterSpec:
    """The machines a profile was measured on, as a cluster."""
    group = NodeGroup(
        gpu=profile.gpu,
        device=profile.device,
        num_nodes=profile.num_nodes,
        gpus_per_node=profile.gpus_per_node,
    )
    links = measured_links(profile)
    name = f"{profile.num_nodes}x{profile.gpus_per_node}:{profile.gpu}"
    return ClusterSpec(name=name, groups=(group,), links=links)


DESCRIBING = ("gemm", "stream")
"""Items without which nothing is fitted of a device that the catalog does not have."""
DEFAULT_MODEL, DEFAULT_SEQ_LENGTH = "llama3-8b", 4096


@dataclass(frozen=True, slots=True)
class StepCoverage:
    """What a profile knows, by a step of the model it was measured for."""

    known: tuple[KnownQuantity, ...]
    step: str
    """In words."""
    machine: Machine
    """That runs it."""


def step_coverage(profile: Profile, measured: Measured) -> StepCoverage:
    """What `profile` knows, on the machine that `measured` describes.

    Where nothing is known of what joins its nodes, by a step on one of them.

    Raises:
        PlanError: Nothing is known of its GPU, or the step is none.
    """
    spec = spec_of(profile)
    several_domains = profile.num_nodes * profile.gpus_per_node > spec.nvlink_domain
    if several_domains and not (profile.nic_gb_per_s or spec.nic_gb_per_s):
        profile = profile.model_copy(update={"num_nodes": 1})
    layers = [p for p in profile.points if isinstance(p, LayerPoint)]
    job = _job(
        profile,
        layers[0].model if layers else preset(DEFAULT_MODEL),
        layers[0].seq_length if layers else DEFAULT_SEQ_LENGTH,
        _precision(profile),
    )
    layout, machine = in_a_node(job.model, profile), machine_for(job, measured)
    step = f"{job.model.name}, tp={layout.tp}, dp={layout.dp}"
    return StepCoverage(_known(profile, job, layout, machine), step, machine)


def error_shares(
    gpu: str | None, model: ModelSpec, seq_length: int, precision: Precision, nodes: tuple[int, int]
) -> Mapping[str, float]:
    """By item, the part of a step's time that it makes sure of on nodes nothing was measured of.

    `gpu` is the catalog's name, null for a device it does not have; `nodes` are nodes and GPUs of
    each. The mean over steps of three layouts: tensor parallel in a node, all replicas with their
    weights spread, a pipeline.

    Source: a search compares layouts, so an error counts in each of them. Of a device that nobody
    knows, every number that sets part of a step counts alike and is assumed; but without the items
    that describe it there is no estimate, so each of these counts as the whole step.
    """
    if gpu is None:
        set_parts = [one for one in QUANTITIES if one.terms and not one.unused]
        share = (ERRORS["assumed"] - ERRORS["measured"]) / len(set_parts)
        alike = _by_item([(one.item, share) for one in set_parts])
        return {**alike, **dict.fromkeys(DESCRIBING, 1.0)}
    bare = Profile(
        gpu=gpu, num_nodes=nodes[0], gpus_per_node=nodes[1], origins=(Origin(source="the catalog"),)
    )
    job = _job(bare, model, seq_length, precision)
    machine, total = machine_for(job), bare.num_nodes * bare.gpus_per_node
    layouts = [in_a_node(model, bare), Layout(dp=total, zero_stage=3)]
    if total > 1 and total % 2 == 0 and model.num_hidden_layers % 2 == 0:
        layouts.append(Layout(pp=2, dp=total // 2, zero_stage=1))
    return _by_item(
        [
            (one.quantity.item, one.uncertainty / len(layouts))
            for layout in layouts
            for one in _known(bare, job, layout, machine)
        ]
    )


def in_a_node(model: ModelSpec, profile: Profile) -> Layout:
    """A layout that touches all: tensor parallel in a node as far as heads allow, else replicas."""
    per_node = profile.gpus_per_node
    fits = [
        n
        for n in range(1, per_node + 1)
        if per_node % n == 0 and model.num_attention_heads % n == 0
    ]
    dp = per_node * profile.num_nodes // fits[-1]
    return Layout(tp=fits[-1], dp=dp, sequence_parallel=fits[-1] > 1, zero_stage=1)


def _job(profile: Profile, model: ModelSpec, seq_length: int, precision: Precision) -> Job:
    cluster = cluster_of(profile)
    training = TrainingSpec(
        seq_length=seq_length, global_batch_size=8 * cluster.num_gpus, precision=precision
    )
    return Job(model=model, training=training, cluster=cluster)


def _known(
    profile: Profile, job: Job, layout: Layout, machine: Machine
) -> tuple[KnownQuantity, ...]:
    (estimate,) = explicit(context_of(job, machine).with_table(LayoutTable.of([layout])))
    return coverage(profile, machine.provenance, estimate.terms, estimate.step_time_s)


def _by_item(shares: list[tuple[str, float]]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for item, share in shares:
        found[item] = found.get(item, 0.0) + share
    return found


def _precision(profile: Profile) -> Precision:
    products = [p.precision for p in profile.points if isinstance(p, ProductPoint)]
    layers = [p.precision for p in profile.points if isinstance(p, LayerPoint)]
    known = products or layers or ["bf16"]
    return max(sorted(set(known)), key=known.count)
