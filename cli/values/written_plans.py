"""Plans that `plan search --output` wrote, read back by the commands that explain them."""

from pathlib import Path

from trainplan.cli.files import errors_of, read_json
from trainplan.cli.terminal import remark
from trainplan.cli.words import otherwise_text
from trainplan.costmodel.calibration import Measured
from trainplan.planner.documents import Written, changed_values, written
from trainplan.planner.questions import estimate


def load_written(path: Path) -> Written:
    """Read a plan.

    Raises:
        PlanError: It is no plan; the message starts with its path.
    """
    text, _ = read_json(path)
    with errors_of(path):
        found = written(text)
    return found


def remark_change(path: Path, plan: Written, measured: Measured) -> str:
    """Warn if a plan was written with other numbers; the sentence, empty if it was not.

    Raises:
        PlanError: Its layout is not legal; the message starts with its path.
    """
    margin = plan.options.margin(plan.job)
    with errors_of(path):
        now = estimate(plan.job, plan.layout, measured, memory_margin=margin)
    changed = changed_values(plan.estimate, now)
    text = otherwise_text(str(path), changed) if changed else ""
    if text:
        remark(text)
    return text


def remark_objective(path: Path, plan: Written) -> None:
    """Warn if the plan was not made for speed: its changed jobs are searched for that."""
    if plan.objective != "time":
        remark(
            f"{path} was made for --objective {plan.objective}: changed jobs are searched for the "
            "shortest step, and gains are against the plan's own"
        )
