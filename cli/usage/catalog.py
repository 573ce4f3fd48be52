"""`plan catalog`: its options and help pages."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import epilog, page
from trainplan.cli.options.shared import JSON


@click.group("catalog", epilog=epilog("plan catalog models llama3-70b"))
def command() -> None:
    """Show known GPUs, hosts, models, optimizers, methods of offload and clusters."""


@page("gpus", "plan catalog gpus h100-sxm", group=command)
@click.argument("name", required=False, shell_complete=completions.GPU)
@JSON
def gpus() -> None:
    """List GPUs, or every number of one GPU with its source."""


@page("models", "plan catalog models my-model/config.json", group=command)
@click.argument("name", required=False, shell_complete=completions.MODEL)
@click.option("--template", is_flag=True, help="Print a commented model file to fill in.")
@JSON
def models() -> None:
    """List model presets, or what was read of one: a preset, a config.json or a model file."""


@page("hosts", "plan catalog hosts", group=command)
@JSON
def hosts() -> None:
    """List hosts of usual nodes: memory, links and drives, each figure with its source."""


@page("methods", "plan catalog methods", group=command)
@JSON
def methods() -> None:
    """List published methods of offload: what they keep where, and who has them."""


@page("optimizers", "plan catalog optimizers", group=command)
@JSON
def optimizers() -> None:
    """List optimizers: their state by the shape of a matrix, their work, who has them."""


@page("clusters", "plan catalog clusters --template > cluster.yaml", group=command)
@click.option("--template", is_flag=True, help="Print a commented cluster file to fill in.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the cluster file.")
@JSON
def clusters() -> None:
    """Show how to describe a cluster: short forms, template, schema."""
