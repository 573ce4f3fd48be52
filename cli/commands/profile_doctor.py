"""What a profile knows of its machine, judged by a step of the model it was measured for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainplan.cli.files.profiles import cluster_of, load_measured
from trainplan.cli.render.profile import coverage_page
from trainplan.cli.terminal.output import show
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.catalog.models import preset
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.measured.counted import shares_note
from trainplan.costmodel.spec import Job, Layout, ModelSpec, TrainingSpec
from trainplan.costmodel.spec.evidence.profile import LayerPoint, ProductPoint, Profile
from trainplan.costmodel.spec.job import Precision
from trainplan.costmodel.step import explicit
from trainplan.profiler.fit.coverage import coverage
from trainplan.profiler.launch.requests import DEFAULT_GPU_MODEL

DEFAULT_SEQ_LENGTH = 4096


def show_findings(paths: Sequence[Path]) -> None:
    """Print the page of `plan doctor PROFILE.json`.

    Raises:
        PlanError: The files are no profiles, or of a GPU nothing is known of.
    """
    measured = load_measured(paths)
    if measured.profile is None:
        raise SpecError(f"{paths[0]}: a calibration; give a file of `plan profile`")
    profile = measured.profile
    job, layout = _step(profile)
    machine = machine_for(job, measured)
    (estimate,) = explicit(context_of(job, machine).with_table(LayoutTable.of([layout])))
    known = coverage(profile, machine.provenance, estimate.terms, estimate.step_time_s)
    degrees = f"{job.model.name}, tp={layout.tp}, dp={layout.dp}"
    show(*coverage_page(profile, known, degrees), *shares_note(machine, profile))


def _step(profile: Profile) -> tuple[Job, Layout]:
    """A step that touches all: tensor parallel in a node as far as heads allow, else replicas."""
    layers = [p for p in profile.points if isinstance(p, LayerPoint)]
    model = layers[0].model if layers else preset(DEFAULT_GPU_MODEL)
    cluster = cluster_of(profile)
    tp = max(n for n in range(1, profile.gpus_per_node + 1) if _cuts(model, n, profile))
    dp = cluster.num_gpus // tp
    training = TrainingSpec(
        seq_length=layers[0].seq_length if layers else DEFAULT_SEQ_LENGTH,
        global_batch_size=8 * dp,
        precision=_precision(profile),
    )
    layout = Layout(tp=tp, dp=dp, sequence_parallel=tp > 1, zero_stage=1)
    return Job(model=model, training=training, cluster=cluster), layout


def _cuts(model: ModelSpec, tp: int, profile: Profile) -> bool:
    return profile.gpus_per_node % tp == 0 and model.num_attention_heads % tp == 0


def _precision(profile: Profile) -> Precision:
    products = [p.precision for p in profile.points if isinstance(p, ProductPoint)]
    layers = [p.precision for p in profile.points if isinstance(p, LayerPoint)]
    known = products or layers or ["bf16"]
    return max(sorted(set(known)), key=known.count)
