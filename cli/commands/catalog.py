"""`plan catalog`: what is known without a file of your own."""

from __future__ import annotations

from importlib.resources import files

import click

from trainplan.cli.files.inputs import read_model
from trainplan.cli.render.catalog import (
    cluster_entries,
    clusters_page,
    gpu_entry,
    gpu_page,
    gpus_page,
    machine_entries,
    model_entry,
    models_page,
    reading_entry,
    reading_page,
)
from trainplan.cli.render.hosts import host_entry, hosts_page
from trainplan.cli.render.methods import method_entry, methods_page
from trainplan.cli.render.optimizers import optimizer_entry, optimizers_page
from trainplan.cli.render.plugged import plugged_part
from trainplan.cli.terminal.output import answer, show_json, write
from trainplan.costmodel.catalog import gpu, gpu_names, plugged_gpus, plugged_hosts
from trainplan.costmodel.catalog import hosts as known_hosts
from trainplan.costmodel.catalog.clusters import gpu_meant
from trainplan.costmodel.catalog.models import plugged_models, preset, preset_names
from trainplan.costmodel.lanes.methods import METHODS
from trainplan.costmodel.optimizers import OPTIMIZERS
from trainplan.costmodel.spec import ClusterSpec

TEMPLATE = "cluster.yaml"
MODEL_TEMPLATE = "model.yaml"


def gpus(name: str | None, *, as_json: bool) -> None:
    """Print all GPUs, or one."""
    if name is None:
        names = gpu_names()
        entries = {"gpus": {known: gpu_entry(known) for known in names}}
        page = gpus_page({known: gpu(known) for known in names})
        answer(entries, (*page, *plugged_part(plugged_gpus())), as_json=as_json)
    else:
        known = gpu_meant(name)
        answer(gpu_entry(known), gpu_page(known), as_json=as_json)


def models(name: str | None, *, template: bool, as_json: bool) -> None:
    """Print all presets, what was read of one model, or a file to fill in."""
    if template and name:
        raise click.UsageError("--template prints a file to fill in: leave the model out")
    if template:
        write(_template(MODEL_TEMPLATE))
    elif name is None:
        presets = [preset(known) for known in preset_names()]
        entries = {"models": {model.name: model_entry(model) for model in presets}}
        page = (*models_page(presets), *plugged_part(plugged_models()))
        answer(entries, page, as_json=as_json)
    else:
        reading = read_model(name)
        answer(reading_entry(reading), reading_page(reading), as_json=as_json)


def hosts(*, as_json: bool) -> None:
    """Print all hosts."""
    entries = {"hosts": {name: host_entry(name) for name in known_hosts()}}
    answer(entries, (*hosts_page(), *plugged_part(plugged_hosts())), as_json=as_json)


def methods(*, as_json: bool) -> None:
    """Print all methods of offload."""
    answer(
        {"methods": {name: method_entry(name) for name in METHODS}}, methods_page(), as_json=as_json
    )


def optimizers(*, as_json: bool) -> None:
    """Print all optimizers."""
    entries = {"optimizers": {name: optimizer_entry(name) for name in OPTIMIZERS}}
    page = (*optimizers_page(), *plugged_part(OPTIMIZERS.plugged()))
    answer(entries, page, as_json=as_json)


def clusters(*, template: bool, schema: bool, as_json: bool) -> None:
    """Print the short forms, the template or the schema."""
    if template and schema:
        raise click.UsageError("--template and --schema exclude each other")
    if template:
        write(_template(TEMPLATE))
    elif schema:
        show_json(ClusterSpec.model_json_schema())
    else:
        entries = {"clusters": cluster_entries(), "machines": machine_entries()}
        answer(entries, clusters_page(), as_json=as_json)


def _template(name: str) -> str:
    """A commented file to fill in."""
    return files("trainplan.cli.templates").joinpath(name).read_text(encoding="utf-8")
