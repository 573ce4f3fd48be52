"""What is written as JSON: a class is the form of a document, its schema and the text of its keys.

A document is made `of` an answer and written by `json`; its verdict for people is its `sentence`.
Those of a plan, of a front and of a tuned plan are in `planner`. A test holds what every command
prints against its schema, closed: a key that only one of both has fails there.

CheckDocument: a launch that was read and checked.
CompareDocument: two plans, term by term.
Curve: points of a sweep along its first parameter.
differences: what is wrong with a combination of `plan verify`, a line each.
document_schema: the JSON Schema of a document.
DOCUMENTS: all of them by name, and who writes or reads each.
equal: is every combination of `plan verify` equal to one process?
EstimateDocument: what one layout costs.
ExplainDocument: what limits a plan, and what more would buy.
FilesDocument: launch files and reports.
InfeasibleDocument: nothing fits, and what would make it fit.
RankingDocument: all schedules of a shape.
ReplanDocument: what to go on with on another cluster than that of a plan.
ScheduleDocument: a pipeline schedule.
short_layout: what a layout of `plan verify` uses.
SimulateDocument: the pipeline of a plan on a clock.
SweepDocument: the best plan at every value of some parameters.
SweepPoint: the best plan of one job.
ValidatedGroup: errors of a group of rows.
ValidateDocument: predictions against measured runs.
ValidatedRow: one measured run and its prediction.
VerifyEnded: the last line of `plan verify`.
VerifyRan: a line when a combination has run.
VerifyStarted: its first line.
WhyNotDocument: why a layout is not the answer.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.documents.check import CheckDocument
    from trainplan.cli.documents.compared import CompareDocument, WhyNotDocument
    from trainplan.cli.documents.explain import ExplainDocument
    from trainplan.cli.documents.files import FilesDocument
    from trainplan.cli.documents.registry import DOCUMENTS, document_schema
    from trainplan.cli.documents.replan import ReplanDocument
    from trainplan.cli.documents.schedules import (
        RankingDocument,
        ScheduleDocument,
        SimulateDocument,
    )
    from trainplan.cli.documents.searches import EstimateDocument, InfeasibleDocument
    from trainplan.cli.documents.sweep import Curve, SweepDocument, SweepPoint
    from trainplan.cli.documents.validate import ValidatedGroup, ValidateDocument, ValidatedRow
    from trainplan.cli.documents.verify import (
        VerifyEnded,
        VerifyRan,
        VerifyStarted,
        differences,
        equal,
        short_layout,
    )
else:
    __getattr__ = door(__name__)
