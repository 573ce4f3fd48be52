"""`plan validate`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options.help import page
from trainplan.cli.options.shared import JSON, PATH, PROFILE, memory_margin, report_options


@page("validate", "plan validate runs.jsonl fits.jsonl --worst 5")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...", type=PATH)
@click.option(
    "--strict/--all",
    "strict",
    default=True,
    show_default=True,
    help="Score only runs whose record is complete, or every run that can be priced.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Also: the error after one measured step of another layout on the same machine.",
)
@click.option(
    "--worst",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="N",
    help="List the N runs that are most off, term by term.",
)
@PROFILE
@memory_margin(0.05)
@report_options
@JSON
def command() -> None:
    """Compare predictions with measured runs.

    Files hold one run a line, as JSON: what was trained, where, how it was laid out, and its step
    time, its peak memory or whether it fitted.
    """
