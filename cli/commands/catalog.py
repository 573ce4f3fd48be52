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
from trainplan.cli.terminal.output import show, show_json, write
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
        if as_json:
            show_json({"gpus": {known: gpu_entry(known) for known in names}})
        else:
            page = gpus_page({known: gpu(known) for known in names})
            show(*page, *plugged_part(plugged_gpus()))
    elif as_json:
        show_json(gpu_entry(gpu_meant(name)))
    else:
        show(*gpu_page(gpu_meant(name)))


def models(name: str | None, *, template: bool, as_json: bool) -> None:
    """Print all presets, what was read of one model, or a file to fill in."""
    if template and name:
        raise click.UsageError("--template prints a file to fill in: leave the model out")
    if template:
        write(_template(MODEL_TEMPLATE))
    elif name is None:
        presets = [preset(known) for known in preset_names()]
        if as_json:
            show_json({"models": {model.name: model_entry(model) for model in presets}})
        else:
            show(*models_page(presets), *plugged_part(plugged_models()))
    elif as_json:
        show_json(reading_entry(read_model(name)))
    else:
        show(*reading_page(read_model(name)))


def hosts(*, as_json: bool) -> None:
    """Print all hosts."""
    if as_json:
        show_json({"hosts": {name: host_entry(name) for name in known_hosts()}})
    else:
        show(*hosts_page(), *plugged_part(plugged_hosts()))


def methods(*, as_json: bool) -> None:
    """Print all methods of offload."""
    if as_json:
        show_json({"methods": {name: method_entry(name) for name in METHODS}})
    else:
        show(*methods_page())


def optimizers(*, as_json: bool) -> None:
    """Print all optimizers."""
    if as_json:
        show_json({"optimizers": {name: optimizer_entry(name) for name in OPTIMIZERS}})
    else:
        show(*optimizers_page(), *plugged_part(OPTIMIZERS.plugged()))


def clusters(*, template: bool, schema: bool, as_json: bool) -> None:
    """Print the short forms, the template or the schema."""
    if template and schema:
        raise click.UsageError("--template and --schema exclude each other")
    if template:
        write(_template(TEMPLATE))
    elif schema:
        show_json(ClusterSpec.model_json_schema())
    elif as_json:
        show_json({"clusters": cluster_entries(), "machines": machine_entries()})
    else:
        show(*clusters_page())


def _template(name: str) -> str:
    """A commented file to fill in."""
    return files("trainplan.cli.templates").joinpath(name).read_text(encoding="utf-8")
