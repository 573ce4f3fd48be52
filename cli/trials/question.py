"""What `plan tune` is given: what is trained, how trials are started, when it ends."""

from dataclasses import dataclass, replace
from pathlib import Path

import click

from trainplan.cli.files import measured_here, profile_text, read_model, write_text
from trainplan.cli.terminal import TaskBar, remark
from trainplan.cli.trials.gpus import num_gpus
from trainplan.cli.values import Question, nothing_here, question
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import DEFAULT_RUNTIME, Precision, RuntimeOptions
from trainplan.costmodel.runtimes import runtime as traits_named
from trainplan.profiler.launch import Files, Launch, device_of, request_for

MICRO_BATCHES = 4
"""Sequences of a step for each process, where not stated."""
AS_TRAINED = {
    "attention": "unfused",
    "cross_entropy": "unfused",
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "overlap_tp_comm": False,
}
"""Settings of the runtime as the processes train, without its kernels for GPUs."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is trained where no plan states it."""

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


def tuned_question(request: Request, way: Way, profile: Path, *, dry: bool) -> Question:
    """The job of `--model` to `--profile`; in processes, what is not stated has a default."""
    if way.nproc:
        request = _trained_here(request, way.nproc, profile, dry=dry)
    model, cluster, batch = request.model, request.cluster, request.global_batch_size
    nowhere = nothing_here() if cluster is None else ""
    if model is None or nowhere or batch is None or request.seq_length is None:
        why = f" ({nowhere})" if nowhere else ""
        raise click.UsageError(
            f"--model needs --cluster{why}, --global-batch-size and --seq-length; or --nproc, "
            "which trains in processes of this machine and measures it first"
        )
    stated = question(
        model=model,
        cluster=cluster,
        global_batch_size=batch,
        seq_length=request.seq_length,
        lengths=None,
        packing=None,
        precision=request.precision or "bf16",
        optimizer="adamw",
        state_precision="o0",
        tokens=None,
        train=None,
        loss_tokens=1.0,
        runtime=request.runtime or DEFAULT_RUNTIME,
        runtime_version=None,
        runtime_options=request.runtime_options,
        reserve_bytes=0,
        reserve_host_bytes=0,
        profiles=request.profiles,
    )
    gpus = stated.job.cluster.num_gpus
    if way.nproc and gpus != way.nproc:
        raise SpecError(f"--nproc {way.nproc}, but the cluster has {gpus} devices: make them equal")
    return stated


def _trained_here(request: Request, nproc: int, profile: Path, *, dry: bool) -> Request:
    """With defaults of this machine, which is measured where no cluster is named."""
    model = read_model(request.model or "").model
    length = request.seq_length or model.max_position_embeddings
    precision = request.precision or ("bf16" if num_gpus() else "fp32")
    by_torch = traits_named(request.runtime or DEFAULT_RUNTIME).shards_with_fsdp2
    trained = {} if by_torch else AS_TRAINED
    for name, value in request.runtime_options.stated().items():
        if trained.get(name, value) != value:
            raise SpecError(
                f"--option {name}={value}: with --nproc it is {trained[name]}: leave the option out"
            )
    if request.cluster is None and not profile.exists():
        _measure(model, nproc, length, precision, profile, dry=dry)
    return replace(
        request,
        cluster=request.cluster or str(profile),
        global_batch_size=request.global_batch_size or MICRO_BATCHES * nproc,
        seq_length=length,
        precision=precision,
        runtime_options=RuntimeOptions.model_validate(
            {**trained, **request.runtime_options.stated()}
        ),
    )


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
        profile = measured_here(request, Launch(nproc), Files.of_output(path), bar, gpus)
    assert profile is not None, "there is one node"
    write_text(path, profile_text(profile), force=True)
