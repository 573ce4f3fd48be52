"""`plan catalog`: what is known without a file of your own."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import epilog, page
from trainplan.cli.options.shared import JSON
from trainplan.cli.terminal.lazily import imported_on_answer

with imported_on_answer():
    from importlib.resources import files

    from trainplan.cli.blocks.shown import answer
    from trainplan.cli.files.inputs import read_model
    from trainplan.cli.pages.catalog import (
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
    from trainplan.cli.pages.hosts import host_entry, hosts_page
    from trainplan.cli.pages.methods import method_entry, methods_page
    from trainplan.cli.pages.optimizers import optimizer_entry, optimizers_page
    from trainplan.cli.pages.plugged import plugged_part
    from trainplan.cli.terminal.output import show_json, write
    from trainplan.costmodel.catalog import gpu, gpu_names, plugged_gpus, plugged_hosts
    from trainplan.costmodel.catalog import hosts as known_hosts
    from trainplan.costmodel.catalog.clusters import gpu_meant
    from trainplan.costmodel.catalog.models import plugged_models, preset, preset_names
    from trainplan.costmodel.copy_streams import METHODS
    from trainplan.costmodel.hardware import ClusterSpec
    from trainplan.costmodel.optimizers import OPTIMIZERS

TEMPLATE = "cluster.yaml"
MODEL_TEMPLATE = "model.yaml"


@click.group("catalog", epilog=epilog("plan catalog models llama3-70b"))
def command() -> None:
    """Show known GPUs, hosts, models, optimizers, methods of offload and clusters."""


@page("gpus", "plan catalog gpus h100-sxm", group=command)
@click.argument("name", required=False, shell_complete=completions.GPU)
@JSON
def gpus(name: str | None, *, as_json: bool) -> None:
    """List GPUs, or every number of one GPU with its source."""
    if name is None:
        names = gpu_names()
        entries = {"gpus": {known: gpu_entry(known) for known in names}}
        page = gpus_page({known: gpu(known) for known in names})
        answer(entries, (*page, *plugged_part(plugged_gpus())), as_json=as_json)
    else:
        known = gpu_meant(name)
        answer(gpu_entry(known), gpu_page(known), as_json=as_json)


@page("models", "plan catalog models my-model/config.json", group=command)
@click.argument("name", required=False, shell_complete=completions.MODEL)
@click.option("--template", is_flag=True, help="Print a commented model file to fill in.")
@JSON
def models(name: str | None, *, template: bool, as_json: bool) -> None:
    """List model presets, or what was read of one: a preset, a config.json or a model file."""
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


@page("hosts", "plan catalog hosts", group=command)
@JSON
def hosts(*, as_json: bool) -> None:
    """List hosts of usual nodes: memory, links and drives, each figure with its source."""
    entries = {"hosts": {name: host_entry(name) for name in known_hosts()}}
    answer(entries, (*hosts_page(), *plugged_part(plugged_hosts())), as_json=as_json)


@page("methods", "plan catalog methods", group=command)
@JSON
def methods(*, as_json: bool) -> None:
    """List published methods of offload: what they keep where, and who has them."""
    answer(
        {"methods": {name: method_entry(name) for name in METHODS}}, methods_page(), as_json=as_json
    )


@page("optimizers", "plan catalog optimizers", group=command)
@JSON
def optimizers(*, as_json: bool) -> None:
    """List optimizers: their state by the shape of a matrix, their work, who has them."""
    entries = {"optimizers": {name: optimizer_entry(name) for name in OPTIMIZERS}}
    page = (*optimizers_page(), *plugged_part(OPTIMIZERS.plugged()))
    answer(entries, page, as_json=as_json)


@page("clusters", "plan catalog clusters --template > cluster.yaml", group=command)
@click.option("--template", is_flag=True, help="Print a commented cluster file to fill in.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the cluster file.")
@JSON
def clusters(*, template: bool, schema: bool, as_json: bool) -> None:
    """Show how to describe a cluster: short forms, template, schema."""
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
