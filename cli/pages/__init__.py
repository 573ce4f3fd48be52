"""What an answer shows, on the terminal and in its report: one file a kind of answer.

`parts` has what several answers show; `report` is what only a report shows: charts and sections.

baseline_text: how a plan compares with the user's own layout.
coverage_page: every quantity of a profile with its origin, and the next measurement.
Extra: what a rank does that is no pass, for a trace.
Finding: one thing that `plan doctor` has checked.
findings_page: those of a machine.
gpu_listing: all GPUs of the catalog, or one with every number of it.
listing: hosts, methods, optimizers or clusters of the catalog.
log_line: what was taken from a log.
model_listing: all presets, or what was read of one model.
next_part: what to type next.
NOT_TRIED: that the time limit left changes out.
notes_part: assumptions and warnings.
progress_line: what a tuning run has just done.
refusals: notes that the runtime cannot run a model, whatever the layout.
screen: the page of an answer, by its class.
step_end: traffic and update at the end of a simulated step, for a trace.
top_of: the first screen of a plan's report.
trace_text: a pipeline on the clock as a trace of Chrome.
verify_page: what was run of a plan.
written: the report of a document, as HTML.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.pages.calibration import log_line
    from trainplan.cli.pages.findings import Finding, findings_page
    from trainplan.cli.pages.infeasible import NOT_TRIED
    from trainplan.cli.pages.listings import gpu_listing, listing, model_listing
    from trainplan.cli.pages.parts.chrome_trace import Extra, trace_text
    from trainplan.cli.pages.parts.headline import refusals
    from trainplan.cli.pages.plan import baseline_text, next_part, notes_part
    from trainplan.cli.pages.profile import coverage_page
    from trainplan.cli.pages.report.plan.page import top_of
    from trainplan.cli.pages.report.registry import written
    from trainplan.cli.pages.screens import screen
    from trainplan.cli.pages.simulation import step_end
    from trainplan.cli.pages.tune import progress_line
    from trainplan.cli.pages.verify import verify_page
else:
    __getattr__ = door(__name__)
