"""What a command line takes: options that commands share, and the page of a command.

Light enough for a help page; what the values mean is in `values`, imported when a command answers.

CANDIDATE: `--candidate`.
completions: what a shell is given when a name is half typed.
FORCE: `--force`.
gathered: several options as one argument, made of their values.
global_batch_size: `--global-batch-size`.
job_option: an option of a job with a help of its own.
job_options: `--model` to `--profile`, as one argument.
JSON: `--json`.
memory_margin: `--memory-margin` with its default.
names: the names that help pages list, out of the registries.
OneOf: an option that takes one of some names, and names the nearest of a wrong one.
node_options: `--nic`, `--power-limit` and `--mtbf-node` to `--repair`, as one argument.
output_options: `--csv --trace --force --width --json`, as one argument.
page: a command of its function, with an example to copy.
parameters: callbacks that read numbers with units.
PATH: a path of a file.
PLAN: the argument PLAN.
PROFILE: `--profile`, again for more.
report_options: `--report --force`, as one argument.
REPORT: `--report`.
RUNTIME_OPTION: `--option`, again for more.
seq_length: `--seq-length`.
time_limit: `--time-limit` with its default.
TRAIN: `--train`.
WORKERS: `--workers`.
"""

from trainplan.cli.options import completions, names, parameters
from trainplan.cli.options.help import gathered, page
from trainplan.cli.options.parameters import OneOf, job_option
from trainplan.cli.options.shared import (
    CANDIDATE,
    FORCE,
    JSON,
    PATH,
    PLAN,
    PROFILE,
    REPORT,
    RUNTIME_OPTION,
    TRAIN,
    WORKERS,
    global_batch_size,
    job_options,
    memory_margin,
    node_options,
    output_options,
    report_options,
    seq_length,
    time_limit,
)
