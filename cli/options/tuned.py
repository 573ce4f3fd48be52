"""What `plan tune` is asked: what is trained, how trials are started, when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trainplan.cli.files.disk import write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.measuring import measured_here
from trainplan.cli.files.profiles import profile_text
from trainplan.cli.options.stated import Question, question
from trainplan.cli.terminal.output import remark
from trainplan.cli.terminal.progress import TaskBar
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.runtimes import runtime as traits_named
from trainplan.costmodel.runtimes.fsdp import shards_with_fsdp2
from trainplan.costmodel.spec import ModelSpec, RuntimeOptions
from trainplan.costmodel.spec.job import DEFAULT_RUNTIME, Precision
from trainplan.profiler.launch.launch import Files, Launch, num_gpus
from trainplan.profiler.launch.requests import device_of, request_for

MICRO_BATCHES = 4
"""Sequences of a step for each process, where nobody says."""
AS_TRAINED = {
    "attention": "unfused",
    "cross_entropy": "unfused",
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "overlap_tp_comm": False,
}
"""Settings of the runtime as the processes train, without its kernels for GPUs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is trained where no plan says it."""

    model: str | None
    cluster: str | None
    global_batch_size: int | None
    seq_length: int | None
    precision: Precision | None
    runtime: str | None
    runtime_options: RuntimeOptions
    profiles: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How trials are launched."""

    nproc: int | None
    launcher: str | None
    template: str | None
    stop_command: str | None
    simulate: Path | None


@dataclass(frozen=True, slots=True)
class Limits:
    """When it ends."""

    trials: int
    budget: float | None
    steps: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the trials are kept."""

    output_dir: Path | None
    resume: bool
    dry_run: bool


def tuned_question(asked: Asked, way: Way, profile: Path, *, dry: bool) -> Question:
    """The job of `--model` to `--profile`; in processes, what is not said has a default."""
    assert asked.model is not None, "checked before"
    model = load_model(asked.model)
    cluster, batch, length = asked.cluster, asked.global_batch_size, asked.seq_length
    precision, options = asked.precision or "bf16", asked.runtime_options
    if way.nproc:
        batch = batch or MICRO_BATCHES * way.nproc
        length = length or model.max_position_embeddings
        device = device_of(num_gpus())
        precision = asked.precision or ("fp32" if device == "cpu" else "bf16")
        trained = (
            {} if shards_with_fsdp2(traits_named(asked.runtime or DEFAULT_RUNTIME)) else AS_TRAINED
        )
        options = RuntimeOptions.model_validate({**trained, **options.stated()})
        if cluster is None:
            if not profile.exists():
                _measure(model, way.nproc, length, precision, profile, dry=dry)
            cluster = str(profile)
    if cluster is None or batch is None or length is None:
        raise click.UsageError(
            "--model needs --cluster, --global-batch-size and --seq-length; or --nproc, which "
            "trains in processes of this machine and measures it first"
        )
    stated = question(
        model=asked.model,
        cluster=cluster,
        global_batch_size=batch,
        seq_length=length,
        lengths=None,
        packing=None,
        precision=precision,
        optimizer="adamw",
        state_precision="o0",
        tokens=None,
        train=None,
        loss_tokens=1.0,
        runtime=asked.runtime or DEFAULT_RUNTIME,
        runtime_version=None,
        runtime_options=options,
        reserve_bytes=0,
        reserve_host_bytes=0,
        profiles=asked.profiles,
    )
    gpus = stated.job.cluster.num_gpus
    if way.nproc and gpus != way.nproc:
        raise SpecError(f"--nproc {way.nproc}, but the cluster has {gpus} devices: make them equal")
    return stated


def _measure(
    model: ModelSpec, nproc: int, length: int, precision: Precision, path: Path, *, dry: bool
) -> None:
    """A quick profile of this machine.

    Raises:
        SpecError: It is a dry run.
    """
    if dry:
        raise SpecError(
            "--dry-run: this machine would be measured first, as `plan profile --quick "
            f"--nproc-per-node {nproc}` does: do that, and give its file as --cluster"
        )
    gpus = num_gpus()
    stated = {"seq_length": length, "precision": precision}
    request = request_for(model, device_of(gpus), nproc, quick=True, stated=stated)
    remark(f"measuring this machine with {nproc} processes, once for this folder")
    with TaskBar("measuring") as bar:
        profile = measured_here(request, Launch(nproc), Files.beside(path), bar, gpus)
    assert profile is not None, "there is one node"
    write_text(path, profile_text(profile), force=True)
