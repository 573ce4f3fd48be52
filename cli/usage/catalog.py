"""`plan catalog`: its options and help pages."""

from __future__ import annotations

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.shared import JSON
from trainplan.cli.terminal.lazily import call


@click.group("catalog", epilog=example("plan catalog models llama3-70b"))
def command() -> None:
    """Show known GPUs, models and clusters."""


@command.command(epilog=example("plan catalog gpus h100-sxm"))
@click.argument("name", required=False)
@JSON
def gpus(**values: object) -> None:
    """List GPUs, or every number of one GPU with its source."""
    call("trainplan.cli.commands.catalog:gpus", **values)


@command.command(epilog=example("plan catalog models deepseek-v3"))
@click.argument("name", required=False)
@JSON
def models(**values: object) -> None:
    """List model presets, or one with its exact parameter counts."""
    call("trainplan.cli.commands.catalog:models", **values)


@command.command(epilog=example("plan catalog clusters --template > cluster.yaml"))
@click.option("--template", is_flag=True, help="Print a commented cluster file to fill in.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the cluster file.")
@JSON
def clusters(**values: object) -> None:
    """Show how to describe a cluster: short forms, template, schema."""
    call("trainplan.cli.commands.catalog:clusters", **values)
