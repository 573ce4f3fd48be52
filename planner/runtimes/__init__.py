"""What runtimes take: a layout as a launch of one, and a launch of one as a job and a layout.

One folder a runtime, what writes its launches and what reads them; next to these what they share.

check_able: has some layout of a job launch files? Raises.
Request: what the user gives with the launch.
corrected_script: a launch with some settings changed, as a bash script.
emitted_flags: options of a launch configuration, and the keys its files set as if they were some.
EXPORTERS: exporter of every runtime a plan can be written for, by runtime id.
Field: one field of them, and where it comes from.
key_lines: the plan in the words of a project.
KeyLines: what to paste, and what to know.
Origin: stated, default, derived or assumed.
launch_rules: what layouts must respect for launch files.
PLUGGED: readers of plug-ins.
program_of_csv: the program of such a file.
Reader: one runtime, which launches are its own and what they state.
READERS: reader of every runtime whose launches are read, in the order in which they are tried.
readers: these, and behind them those of plug-ins.
Reading: a launch as a job and a layout.
runtime_chosen: the job under the first runtime that can, and why.
schedule_csv: a program in torch's format "compute_only".
SettingChange: one option or key, before and after.
SHORT_RUNS: trial of every runtime whose launches print step times.
TRAINERS: projects over runtimes whose files are written, by name.
trial_launch: a launch that ends after a few steps.
unknown_flags: options that an exporter writes and the sources of its runtime do not define.
what_torch_lacks: the first thing of a program that torch's pipelines do not run.
why_unable: why no layout of a job has a price or launch files; null: some may have.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.runtimes.able import (
        check_able,
        launch_rules,
        runtime_chosen,
        why_unable,
    )
    from trainplan.planner.runtimes.compare import emitted_flags, unknown_flags
    from trainplan.planner.runtimes.corrected import SettingChange, corrected_script
    from trainplan.planner.runtimes.key_tables.lines import KeyLines, key_lines
    from trainplan.planner.runtimes.reading import Field, Origin, Reader, Reading, Request
    from trainplan.planner.runtimes.registry import EXPORTERS, PLUGGED, READERS, readers
    from trainplan.planner.runtimes.torch_schedule_csv import (
        program_of_csv,
        schedule_csv,
        what_torch_lacks,
    )
    from trainplan.planner.runtimes.trainers import TRAINERS
    from trainplan.planner.runtimes.trial_steps import SHORT_RUNS, trial_launch
else:
    __getattr__ = door(__name__)
