"""`plan catalog`: what is known without a file of your own."""

import click

from trainplan.cli.options import JSON, completions, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from importlib.resources import files

    from trainplan.cli.blocks import answer
    from trainplan.cli.files import read_model
    from trainplan.cli.pages import gpu_listing, listing, model_listing
    from trainplan.cli.terminal import show_json, write
    from trainplan.costmodel.hardware import ClusterSpec
    from trainplan.costmodel.presets import gpu_intended

TEMPLATE = "cluster.yaml"
MODEL_TEMPLATE = "model.yaml"


@click.group("catalog", epilog="\b\nExample:\n  plan catalog models llama3-70b")
def command() -> None:
    """Show known GPUs, hosts, models, optimizers, methods of offload and clusters."""


@page("gpus", "plan catalog gpus h100-sxm", group=command)
@click.argument("name", required=False, shell_complete=completions.GPU)
@JSON
def gpus(name: str | None, *, as_json: bool) -> None:
    """List GPUs, or every number of one GPU with its source."""
    answer(*gpu_listing(name and gpu_intended(name)), as_json=as_json)


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
    else:
        answer(*model_listing(None if name is None else read_model(name)), as_json=as_json)


@page("hosts", "plan catalog hosts", group=command)
@JSON
def hosts(*, as_json: bool) -> None:
    """List hosts of usual nodes: memory, links and drives, each figure with its source."""
    answer(*listing("hosts"), as_json=as_json)


@page("methods", "plan catalog methods", group=command)
@JSON
def methods(*, as_json: bool) -> None:
    """List published methods of offload: what they keep where, and who has them."""
    answer(*listing("methods"), as_json=as_json)


@page("optimizers", "plan catalog optimizers", group=command)
@JSON
def optimizers(*, as_json: bool) -> None:
    """List optimizers: their state by the shape of a matrix, their work, who has them."""
    answer(*listing("optimizers"), as_json=as_json)


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
        answer(*listing("clusters"), as_json=as_json)


def _template(name: str) -> str:
    """A commented file to fill in."""
    return files("trainplan.cli.templates").joinpath(name).read_text(encoding="utf-8")
