"""Does a checkout of a runtime know the options we write?"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainplan.cli.files import read_text
from trainplan.cli.pages import Finding
from trainplan.costmodel.base import PlanError, SpecError, shortened
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.presets import preset, preset_names
from trainplan.planner.runtimes import EXPORTERS, emitted_flags, unknown_flags

SUBMODULES = "3rdparty/"
"""Folder of repositories that a checkout pins, which may not be fetched."""
LONGEST_PATH = 200
"""Characters of a path that a finding repeats."""


def runtime_finding(folder: Path) -> Finding:
    """Compare all options we can write for the runtime of a checkout with those it defines."""
    first = {name: one.source_patterns[0] for name, one in EXPORTERS.items() if one.source_patterns}
    name = next((runtime for runtime, file in first.items() if _is_file(folder / file)), None)
    if name is None:
        files = " and ".join(f"no {file} ({runtime})" for runtime, file in first.items())
        where = shortened(str(folder), LONGEST_PATH)
        detail = f"{where}: {files} in it; give a checkout of {' or '.join(first)}"
        return Finding("runtime", good=False, detail=detail)
    flags = _emitted_flags(name)
    try:
        absent = unknown_flags(name, flags, [read_text(path) for path in _sources(name, folder)])
    except (PlanError, SyntaxError) as error:
        return Finding(name, good=False, detail=f"{error}")
    if absent:
        return Finding(name, good=False, detail=f"does not know {', '.join(absent)}")
    return Finding(name, good=True, detail=f"knows all {len(flags)} options we write")


def _is_file(path: Path) -> bool:
    with suppress(OSError, ValueError):  # too long a name, a NUL byte
        return path.is_file()
    return False


def _sources(runtime: str, folder: Path) -> Iterator[Path]:
    for pattern in EXPORTERS[runtime].source_patterns:
        found = sorted(folder.glob(pattern))
        if not found and pattern.startswith(SUBMODULES):
            raise SpecError(
                f"{folder}: no {pattern} in it; `git submodule update --init` fetches what is "
                "pinned there"
            )
        yield from found


def _emitted_flags(runtime: str) -> frozenset[str]:
    """Options of every preset under layouts that use every part of an exporter."""
    flags: set[str] = set()
    for job, layout in _samples(runtime):
        try:
            config = EXPORTERS[runtime](job, layout)
        except PlanError:  # this preset and this layout exclude each other
            continue
        flags |= {*emitted_flags(config)}
    return frozenset(flags)


def _samples(runtime: str) -> Iterator[tuple[Job, Layout]]:
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
    for model in map(preset, preset_names()):
        for precision in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4"):
            training = TrainingSpec.model_validate(
                {"seq_length": 4096, "global_batch_size": 64, "precision": precision}
            )
            job = Job(model=model, training=training, cluster=cluster, runtime=runtime)
            yield from ((job, layout) for layout in layouts)
