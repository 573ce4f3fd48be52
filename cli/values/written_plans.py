"""Plans that `plan search --output` wrote, read back by the commands that explain them."""

from pathlib import Path

from trainplan.cli.files import errors_of, read_json
from trainplan.cli.terminal import remark
from trainplan.cli.words import otherwise_text
from trainplan.planner.documents import Written, made_otherwise, written


def load_written(path: Path) -> Written:
    """Read a plan.

    Raises:
        PlanError: It is no plan; the message starts with its path.
    """
    text, _ = read_json(path)
    with errors_of(path):
        found = written(text)
    return found


def remark_change(plan: Path | str, written_s: float, now_s: float) -> None:
    """Say so if a plan was made with other numbers."""
    if made_otherwise(written_s, now_s):
        remark(otherwise_text(str(plan), written_s, now_s))


def remark_objective(path: Path, plan: Written) -> None:
    """Say so if the plan was not made for speed: its changed jobs are searched for that."""
    if plan.objective != "time":
        remark(
            f"{path} was made for --objective {plan.objective}: changed jobs are searched for the "
            "shortest step, and gains are against the plan's own"
        )
