"""`plan doctor`: is this installation whole, and does your runtime know what we write?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.text import Text

from trainplan.cli.commands.profile_doctor import profile_findings
from trainplan.cli.files.disk import FileError, read_text
from trainplan.cli.options.help import example
from trainplan.cli.render.parts.grid import Column, grid
from trainplan.cli.terminal.output import show
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.catalog.models import preset, preset_names
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.spec.layout import Layout, OffloadSpec
from trainplan.costmodel.spec.training import TrainingSpec
from trainplan.planner.exporters import EXPORTERS
from trainplan.planner.exporters.compare import flags_in_sources

DISTRIBUTION = "trainplan"
PACKAGE = "trainplan"
LIBRARIES = ("click", "numpy", "pydantic", "pyyaml", "rich")
MISSING = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    name: str
    good: bool
    detail: str


@click.command(
    "doctor",
    epilog=example("plan doctor --runtime-path ~/Megatron-LM", "plan doctor profile.json"),
)
@click.argument("profiles", nargs=-1, metavar="[PROFILE.json...]", type=click.Path(path_type=Path))
@click.option(
    "--runtime-path",
    type=click.Path(path_type=Path),
    help="A Megatron-LM checkout: does it know every option we write?",
)
def command(profiles: tuple[Path, ...], runtime_path: Path | None) -> None:
    """Check installation, runtime or a profile.

    Of a profile: which numbers are measured, which are fitted or assumed, and which measurement
    would shrink the error most.
    """
    if profiles:
        show(*profile_findings(profiles))
        return
    findings = [*_installation(), _torch()]
    if runtime_path is not None:
        findings.append(_runtime(runtime_path))
    show(
        grid(
            (
                Column("", numeric=False),
                Column("check", numeric=False),
                Column("finding", numeric=False),
            ),
            ((_mark(finding), finding.name, finding.detail) for finding in findings),
        )
    )
    if not all(finding.good for finding in findings):
        click.get_current_context().exit(MISSING)


def _mark(finding: Finding) -> Text:
    return Text("ok", style="green") if finding.good else Text("MISSING", style="bold red")


def _installation() -> Iterator[Finding]:
    yield Finding("python", good=True, detail=platform.python_version())
    for library in (DISTRIBUTION, *LIBRARIES):
        try:
            version = importlib.metadata.version(library)
            yield Finding(library, good=True, detail=version)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(library, good=False, detail=f"not installed: pip install {library}")
    owners = importlib.metadata.packages_distributions().get(PACKAGE, [])
    yield _ownership(sorted({name.lower() for name in owners}))


def _ownership(owners: list[str]) -> Finding:
    """Top-level names are shared by all distributions: another may have put modules below ours."""
    name = f"package {PACKAGE}"
    others = [owner for owner in owners if owner != DISTRIBUTION]
    if others:
        detail = (
            f"also belongs to {', '.join(others)}, which may have replaced it: "
            "install trainplan into an environment of its own"
        )
        return Finding(name, good=False, detail=detail)
    detail = "belongs to trainplan" if owners else "runs from a checkout"
    return Finding(name, good=True, detail=detail)


def _torch() -> Finding:
    there = importlib.util.find_spec("torch") is not None
    detail = (
        "found: measurements are possible" if there else "not installed: only measuring needs it"
    )
    return Finding("torch", good=True, detail=detail)


def _runtime(folder: Path) -> Finding:
    """Compare all options we can write with those the checkout defines."""
    name = "Megatron-LM"
    try:
        texts = [read_text(path) for path in _sources(folder)]
        known = flags_in_sources(texts)
    except (PlanError, SyntaxError) as error:
        return Finding(name, good=False, detail=f"{error}")
    flags = _emitted_flags()
    absent = sorted(flag for flag in flags if flag not in known)
    if absent:
        return Finding(name, good=False, detail=f"does not know {', '.join(absent)}")
    return Finding(name, good=True, detail=f"knows all {len(flags)} options we write")


def _sources(folder: Path) -> list[Path]:
    patterns = EXPORTERS["megatron-lm"].source_patterns
    if not (folder / patterns[0]).is_file():
        raise FileError(f"{folder}: no {patterns[0]} in it; give a Megatron-LM checkout")
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _emitted_flags() -> frozenset[str]:
    """Options of every preset under layouts that use every part of an exporter."""
    flags: set[str] = set()
    for job, layout in _samples():
        try:
            config = EXPORTERS[job.runtime](job, layout)
        except PlanError:  # this preset and this layout exclude each other
            continue
        flags |= {argument.flag for argument in config.arguments}
    return frozenset(flags)


def _samples() -> Iterator[tuple[Job, Layout]]:
    cluster = parse_cluster("1x8:h100-sxm")
    layouts = (
        Layout(
            tp=2,
            pp=2,
            dp=2,
            sequence_parallel=True,
            recompute="selective",
            recompute_modules=("core_attn",),
        ),
        Layout(pp=2, vpp=2, cp=2, dp=2, schedule="interleaved"),
        Layout(dp=8, recompute="full", recompute_method="uniform", recompute_num_layers=1),
        Layout(dp=8, offload=OffloadSpec(optimizer=0.5)),
        Layout(dp=8, zero_stage=3),
        Layout(dp=8, dp_replicate=2, zero_stage=2),
        Layout(dp=8, zero_stage=0),
        Layout(dp=8, ep=4, etp=2),
    )
    for name in preset_names():
        for precision in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4"):
            training = TrainingSpec.model_validate(
                {"seq_length": 4096, "global_batch_size": 64, "precision": precision}
            )
            job = Job(model=preset(name), training=training, cluster=cluster)
            yield from ((job, layout) for layout in layouts)
