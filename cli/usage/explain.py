"""`plan explain`: its options and help page."""

from __future__ import annotations

from trainplan.cli.options.help import page
from trainplan.cli.options.shared import JSON, PLAN, PROFILE, WORKERS, time_limit


@page("explain", "plan explain plan.json")
@PLAN
@PROFILE
@time_limit(30.0, "Price changes of the job until then; those left are said to be untried.")
@WORKERS
@JSON
def command() -> None:
    """Say what limits a plan, what more would buy.

    PLAN is a file written by `plan search --output`. Prints where the step goes, what binds, what
    changes of the job would buy, each by a search of its own, and how sure the choice is.
    """
