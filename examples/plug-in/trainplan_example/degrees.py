"""`plan degrees plan.json`: its degrees as variables of a shell."""

from pathlib import Path

import click

from trainplan.planner import chosen_from_json


@click.command("degrees")
@click.argument("plan", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def command(plan: Path) -> None:
    """Print the degrees of a plan, for `eval "$(plan degrees plan.json)"`."""
    _, layout = chosen_from_json(plan.read_text(encoding="utf-8"))
    for name in ("tp", "pp", "cp", "dp", "ep"):
        click.echo(f"{name.upper()}={getattr(layout, name)}")
