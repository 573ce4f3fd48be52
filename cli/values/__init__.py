"""What the values of options mean: job, machine, layouts, plans, schedules, where answers go.

ALL: the kind that is all schedules.
alongside: the folder that files named in a launch are looked for in.
Destination: where a plan or a calibration goes.
Durations: what is stated of the passes' durations.
load_written: job, layout and options of a file of a plan.
model_next_to: the model that a launch in a folder names.
nothing_here: why a cluster must be named.
Outputs: where a schedule goes, and as what.
parse_choices: read `--fix` and `--exclude`.
parse_layout: a layout out of `tp=8,pp=4`, a printed one, or `@plan.json:3`.
parse_settings: read `NAME=VALUE`, each once.
place_of: where `--fix tower=` puts the tower, and all other fields that are held.
Question: the job, and what the user stated of runtime and machine.
question: the job of `--model` to `--profile`.
read_launches: the launches of a file, or the one of a command.
refuse_idle: refuse the first option that nothing would come of.
refuse_no_export: refuse `--csv` where torch runs no schedule with these options.
refuse_nothing_to_split: refuse `--split-backward` where no backward pass is whole.
remark_change: warn if a plan was made with other numbers.
remark_objective: warn if the plan was not made for speed.
ReportFile: where the answer goes as a page with charts.
Sizes: what is stated of the pipeline's shape.
spelled_out: `mbs=1` as `micro_batch_size=1`, `recompute=norm` as `recompute_modules=layernorm`.
text_next_to: text of a file that a launch names.
Way: where the schedule comes from.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.values.launches import (
        alongside,
        model_next_to,
        parse_settings,
        read_launches,
        text_next_to,
    )
    from trainplan.cli.values.layout_text import parse_choices, parse_layout, spelled_out
    from trainplan.cli.values.machine import nothing_here
    from trainplan.cli.values.schedule import ALL, Durations, Outputs, Sizes, Way
    from trainplan.cli.values.schedule_effects import (
        refuse_idle,
        refuse_no_export,
        refuse_nothing_to_split,
    )
    from trainplan.cli.values.stated import Destination, Question, ReportFile, question
    from trainplan.cli.values.tower import place_of
    from trainplan.cli.values.written_plans import load_written, remark_change, remark_objective
else:
    __getattr__ = door(__name__)
