"""`plan import`: profiles that people already have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    OneOf,
    completions,
    gathered,
    job_option,
    names,
    page,
    parameters,
    seq_length,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import show
    from trainplan.cli.files import load_model, profile_text, read_log, refuse_existing, write_text
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import show_json
    from trainplan.costmodel.base import SpecError
    from trainplan.costmodel.job import Precision
    from trainplan.costmodel.presets import gpu_intended
    from trainplan.profiler.fit import fitted, spec_of
    from trainplan.profiler.importers import ImportRequest, import_profile


def requested(
    *,
    gpu: str,
    gpus_per_node: int | None,
    model: str | None,
    seq_length: int | None,
    precision: Precision | None,
    source: str,
) -> ImportRequest:
    """What the files do not state.

    Raises:
        PlanError: The GPU or the model is unknown, or the model's file is wrong.
    """
    return ImportRequest(
        gpu=gpu_intended(gpu),
        model=load_model(model) if model else None,
        seq_length=seq_length,
        precision=precision,
        gpus_per_node=gpus_per_node,
        source=source,
    )


FURTHER = (
    ""
    if "simumax" in names.PROFILE_FORMATS
    else "; aceso, galvatron, metis, sailor and simumax: `pip install ./examples/importers`"
)
REQUEST = (
    click.option(
        "--gpu",
        required=True,
        shell_complete=completions.GPU,
        help="What it was measured on (`plan catalog gpus`).",
    ),
    click.option(
        "--gpus-per-node",
        type=parameters.IntRange(1, 1024),
        help="GPUs of one node, where the files do not state it.",
    ),
    job_option("--model", "Whose layers were measured."),
    seq_length(required=False),
    job_option("--precision", "Number format."),
    click.option(
        "--source",
        default="",
        show_default=False,
        help="Where the files come from; kept in the profile.",
    ),
)


@page(
    "import",
    "plan import nccl-tests all_reduce.txt all_gather.txt --gpu h100-sxm \\",
    "  --output profile.json",
)
@click.argument(
    "format_name", metavar="FORMAT", type=OneOf("format", names.PROFILE_FORMATS, FURTHER)
)
@click.argument("files", nargs=-1, required=True, type=PATH)
@gathered("request", "requested", REQUEST)
@click.option("--output", type=PATH, required=True, help="The profile.")
@FORCE
@JSON
def command(
    format_name: str,
    files: tuple[Path, ...],
    request: ImportRequest,
    output: Path,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Read a profile of another tool.

    FORMAT: nccl-tests; with the plug-in in examples/importers also aceso, galvatron, metis, sailor
    and simumax. Logs of whole steps (Megatron-LM, torchtitan, torch profiler) go to
    `plan calibrate --log`.
    """
    refuse_existing(output, force=force)
    if any(output.resolve() == one.resolve() for one in files):
        raise click.UsageError(f"{output} is read and would be replaced: choose another --output")
    bare = import_profile(format_name, _texts(files), request)
    profile = fitted(bare, spec_of(bare))
    write_text(output, profile_text(profile), force=force)
    if as_json:
        show_json(profile.document())
    else:
        show(*screen(profile, output))


def _texts(files: tuple[Path, ...]) -> Mapping[str, str]:
    """Contents by name: some formats state things in the name.

    Raises:
        SpecError: Two files of one name.
    """
    texts: dict[str, str] = {}
    for path in files:
        if path.name in texts:
            raise SpecError(f"{path}: a second file {path.name!r}: import them one after another")
        texts[path.name] = read_log(path)
    return texts
