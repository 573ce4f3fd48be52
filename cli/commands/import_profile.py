"""`plan import`: profiles that people already have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click

from trainplan.cli.files.disk import read_log, refuse_existing, write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.profiles import profile_document, profile_text
from trainplan.cli.options.help import example
from trainplan.cli.options.shared import FORCE, JSON, gathered
from trainplan.cli.render.profile import profile_page
from trainplan.cli.terminal.output import show, show_json
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.catalog import gpu as catalog_gpu
from trainplan.costmodel.spec.training import LARGEST_SIZE, Precision
from trainplan.profiler.fit.merge import spec_of
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.importers import IMPORTERS, Asked, import_profile


def _asked(
    *,
    gpu: str,
    gpus_per_node: int | None,
    model: str | None,
    seq_length: int | None,
    precision: Precision | None,
    source: str,
) -> Asked:
    catalog_gpu(gpu)
    return Asked(
        gpu=gpu,
        model=load_model(model) if model else None,
        seq_length=seq_length,
        precision=precision,
        gpus_per_node=gpus_per_node,
        source=source,
    )


ASKED = (
    click.option("--gpu", required=True, help="What it was measured on (`plan catalog gpus`)."),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        help="GPUs of one node, where the files do not say.",
    ),
    click.option("--model", metavar="MODEL", help="Whose layers were measured."),
    click.option("--seq-length", type=click.IntRange(1, LARGEST_SIZE), help="Tokens per sequence."),
    click.option("--precision", type=click.Choice(get_args(Precision)), help="Number format."),
    click.option("--source", default="", help="Where the files come from; kept in the profile."),
)


@click.command(
    "import",
    epilog=example(
        "plan import nccl-tests all_reduce.txt all_gather.txt --gpu h100-sxm \\",
        "  --output profile.json",
    ),
)
@click.argument("format_name", metavar="FORMAT", type=click.Choice(tuple(IMPORTERS)))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@gathered("asked", _asked, ASKED)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The profile.")
@FORCE
@JSON
def command(
    format_name: str,
    files: tuple[Path, ...],
    asked: Asked,
    output: Path,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Read a profile of another tool.

    FORMAT: aceso, galvatron, metis, nccl-tests, sailor or simumax. Logs of whole steps
    (Megatron-LM, torchtitan, torch profiler) go to `plan calibrate --log`.
    """
    refuse_existing(output, force=force)
    if any(output.resolve() == one.resolve() for one in files):
        raise click.UsageError(f"{output} is read and would be replaced: choose another --output")
    bare = import_profile(format_name, _texts(files), asked)
    profile = fitted(bare, spec_of(bare))
    write_text(output, profile_text(profile), force=force)
    if as_json:
        show_json(profile_document(profile))
    else:
        show(*profile_page(profile, output))


def _texts(files: tuple[Path, ...]) -> Mapping[str, str]:
    """Contents by name: some formats say things in the name.

    Raises:
        SpecError: Two files of one name.
    """
    texts: dict[str, str] = {}
    for path in files:
        if path.name in texts:
            raise SpecError(f"{path}: a second file {path.name!r}: import them one after another")
        texts[path.name] = read_log(path)
    return texts
