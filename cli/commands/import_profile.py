"""`plan import`: profiles that people already have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from trainplan.cli.files.disk import read_log, refuse_existing, write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.profiles import profile_document, profile_text
from trainplan.cli.render.profile import profile_page
from trainplan.cli.terminal.output import show, show_json
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.catalog.clusters import gpu_meant
from trainplan.costmodel.spec.job import Precision
from trainplan.profiler.fit.merge import spec_of
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.importers import ImportRequest, import_profile


def asked_for(
    *,
    gpu: str,
    gpus_per_node: int | None,
    model: str | None,
    seq_length: int | None,
    precision: Precision | None,
    source: str,
) -> ImportRequest:
    """What the files do not say.

    Raises:
        PlanError: The GPU or the model is unknown, or the model's file is wrong.
    """
    return ImportRequest(
        gpu=gpu_meant(gpu),
        model=load_model(model) if model else None,
        seq_length=seq_length,
        precision=precision,
        gpus_per_node=gpus_per_node,
        source=source,
    )


def command(
    format_name: str,
    files: tuple[Path, ...],
    asked: ImportRequest,
    output: Path,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Write the profile of the files and print it."""
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
