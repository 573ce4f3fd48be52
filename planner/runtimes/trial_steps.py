"""What turns the launch of a training into a trial of a few steps, as data by runtime.

A trial logs each step, saves nothing, and makes up what the user has not set, where the runtime
can: data, a tokenizer. What runs in a step stays as planned.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from trainplan.costmodel.base import UnsupportedError
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    Value,
    assigned,
    option,
    switch,
)
from trainplan.planner.runtimes.megatron_lm import keys

STEPS = "{steps}"
"""Stands for the number of steps in values and in lines of files."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes of a launch."""

    sets: tuple[Argument, ...] = ()
    """In place of those of the same name, or new."""
    drops: frozenset[str] = frozenset()
    """Names of arguments."""
    lines: tuple[tuple[str, str], ...] = ()
    """Pattern of a line in one of the files, and what stands there instead."""
    variables: frozenset[str] = frozenset()
    """What the user need not set any more."""
    program: ConfigFile | None = None
    """A module that runs in place of the program, and runs it."""


@dataclass(frozen=True, slots=True)
class ShortRun:
    """A trial of one runtime."""

    always: Edit
    unless_set: Mapping[str, Edit] = field(default_factory=dict)
    """By the variable that the user may have set: what does without it."""


def trial_launch(launch: LaunchConfig, steps: int, given: Collection[str]) -> LaunchConfig:
    """A launch that ends after a few steps.

    Args:
        launch: As it is exported.
        steps: Optimizer steps to run.
        given: Variables that the user has set.

    Raises:
        UnsupportedError: Such a launch prints no step times.
    """
    short = SHORT_RUNS.get(launch.runtime)
    if short is None:
        raise UnsupportedError(
            f"{launch.runtime} has no trials: its training script is yours, and what is known of "
            "it prints no step times; try deepspeed, or fsdp2, or measure by `plan calibrate`"
        )
    made_up = (edit for name, edit in short.unless_set.items() if name not in given)
    for edit in (short.always, *(one for one in made_up if _has_lines(launch, one))):
        launch = _edited(launch, edit, steps)
    return replace(
        launch,
        summary=(*launch.summary, f"a trial: {steps} steps, each logged, nothing saved"),
        read_back=False,
    )


def _has_lines(launch: LaunchConfig, edit: Edit) -> bool:
    """Has the launch what would be edited? Samples of a tower, for one, are not made up."""
    texts = "\n".join(file.text for file in launch.files)
    return all(re.search(pattern, texts, re.MULTILINE) for pattern, _ in edit.lines)


def _edited(launch: LaunchConfig, edit: Edit, steps: int) -> LaunchConfig:
    files = _with_lines(launch.files, edit.lines, steps)
    named = {file.name: file for file in files}
    entry = launch.entry_point
    if edit.program:
        files = (*files, edit.program)
        entry = ModuleEntry(edit.program.name.removesuffix(".py"))
    return replace(
        launch,
        entry_point=entry,
        arguments=tuple(_arguments(launch.arguments, edit, steps, named)),
        files=files,
        required_environment=tuple(
            one for one in launch.required_environment if one.name not in edit.variables
        ),
    )


def _arguments(
    before: Iterable[Argument], edit: Edit, steps: int, files: Mapping[str, ConfigFile]
) -> Iterator[Argument]:
    sets = {one.flag: one for one in edit.sets}
    for argument in before:
        if argument.flag not in edit.drops:
            yield _filled(sets.pop(argument.flag, argument), steps, files)
    for argument in sets.values():
        yield _filled(argument, steps, files)


def _filled(argument: Argument, steps: int, files: Mapping[str, ConfigFile]) -> Argument:
    def value(one: Value) -> Value:
        if isinstance(one, ConfigFile):
            return files[one.name]
        return one.replace(STEPS, str(steps)) if isinstance(one, str) else one

    return replace(argument, values=tuple(map(value, argument.values)))


def _with_lines(
    files: tuple[ConfigFile, ...], lines: Iterable[tuple[str, str]], steps: int
) -> tuple[ConfigFile, ...]:
    texts = {file.name: file.text for file in files}
    for pattern, line in lines:
        found = [name for name, text in texts.items() if re.search(pattern, text, re.MULTILINE)]
        assert len(found) == 1, f"{pattern!r} is in {found}"
        changed, count = re.subn(
            pattern, line.replace(STEPS, str(steps)), texts[found[0]], flags=re.MULTILINE
        )
        assert count == 1, f"{pattern!r} is in {found} {count} times"
        texts[found[0]] = changed
    return tuple(replace(file, text=texts[file.name]) for file in files)


def _megatron() -> ShortRun:
    """Options of Megatron-LM, and of its fork.

    Without evaluation steps no data of evaluation is made; a warm-up of the learning rate has to be
    shorter than the run. Source: megatron/training/arguments.py and megatron/training/training.py,
    `update_train_iters` and `build_train_valid_test_data_loaders`;
    megatron/core/optimizer_param_scheduler.py; megatron/core/tokenizers/utils/build_tokenizer.py.
    """
    return ShortRun(
        always=Edit(
            sets=MEGATRON_SETS,
            drops=frozenset({keys.SAVE.flag, "--load", keys.SAVE_INTERVAL.flag}),
            variables=frozenset({"CHECKPOINT_PATH"}),
        ),
        unless_set={
            "DATA_PATH": Edit(
                sets=(switch("data", "--mock-data"),),
                drops=frozenset({keys.DATA.flag, "--split"}),
                variables=frozenset({"DATA_PATH"}),
            ),
            "TOKENIZER_MODEL": Edit(
                sets=(keys.TOKENIZER("NullTokenizer"),),
                drops=frozenset({"--tokenizer-model"}),
                variables=frozenset({"TOKENIZER_MODEL"}),
            ),
        },
    )


MEGATRON_SETS = (
    keys.STEPS(STEPS),
    option("optimizer", "--lr-warmup-iters", 0),
    option("data", "--eval-iters", 0),
    option("data", "--log-interval", 1),
)


BRIDGE_SETS = (
    assigned("optimizer", "train.train_iters", STEPS),
    assigned("optimizer", "scheduler.lr_warmup_iters", "0"),
    assigned("data", "validation.eval_iters", "0"),
    assigned("data", "logger.log_interval", "1"),
)


def _bridge() -> ShortRun:
    """The same keys, and what the recipe sets by itself.

    Source: Megatron-Bridge `src/megatron/bridge/training/config.py`, CheckpointConfig,
    LoggerConfig, `GPTDatasetConfig.finalize` (data is made up where there is none) and
    `training/tokenizers/config.py`; `training/setup.py`, `_validate_and_set_vocab_size`.
    """
    tokenizer = (
        r"    recipe\.tokenizer\.tokenizer_type = .*\n    recipe\.tokenizer\.tokenizer_model = .*\n"
        r"    recipe\.tokenizer\.vocab_size = None\n"
    )
    null = (
        '    recipe.tokenizer.tokenizer_type = "NullTokenizer"\n'
        "    recipe.tokenizer.vocab_size = recipe.model.vocab_size\n"
    )
    return ShortRun(
        always=Edit(
            sets=BRIDGE_SETS,
            lines=(
                (
                    r"^    recipe\.checkpoint\.save = .*$",
                    "    recipe.checkpoint.save = recipe.checkpoint.load = None\n"
                    "    recipe.logger.tensorboard_dir = None",
                ),
            ),
            variables=frozenset({"CHECKPOINT_PATH"}),
        ),
        unless_set={
            "DATA_PATH": Edit(
                lines=((r"^    recipe\.dataset\.data_path = .*\n", ""),),
                variables=frozenset({"DATA_PATH"}),
            ),
            "TOKENIZER_MODEL": Edit(
                lines=((tokenizer, null),), variables=frozenset({"TOKENIZER_MODEL"})
            ),
        },
    )


def _torchtitan() -> ShortRun:
    """Keys on the command line, which go before those of the module.

    Source: torchtitan/config/manager.py, ConfigManager; components/metrics.py;
    components/checkpointer/base.py. It has no data of its own making.
    """
    return ShortRun(
        always=Edit(
            sets=(
                option("data", "--training.steps", STEPS),
                option("data", "--metrics.log_freq", 1),
                switch("data", "--checkpoint.no-enable"),
            ),
            lines=(
                (
                    r"os\.environ\[\"OUTPUT_PATH\"\]",
                    'os.path.join(os.path.dirname(__file__), "output")',
                ),
            ),
            variables=frozenset({"OUTPUT_PATH"}),
        )
    )


TELLING = '''\
"""Runs train.py with a logger of DeepSpeed that tells the time of each step."""

import os
import runpy
import sys

from deepspeed.utils import set_log_level_from_string

set_log_level_from_string("info")
sys.path.insert(0, os.environ["TRAIN_FOLDER"])
runpy.run_path(os.path.join(os.environ["TRAIN_FOLDER"], "train.py"), run_name="__main__")
'''
DEEPSPEED = ShortRun(
    always=Edit(
        lines=((r"\A{\n", '{\n  "steps_per_print": 1,\n'),),
        program=ConfigFile("told_train.py", TELLING),
    )
)
"""The engine tells of each step; the user's script goes on until it is ended.

Source: deepspeed/runtime/config.py, get_steps_per_print (the default tells of none), and
deepspeed/utils/logging.py (whose default tells warnings alone)."""
# arctic_training/config/trainer.py: each micro batch is logged, no checkpoint is written by default
ARCTIC_TRAINING = ShortRun(always=Edit(lines=((r"^train_iters: \d+$", f"train_iters: {STEPS}"),)))
FSDP2 = ShortRun(always=Edit(sets=(option("data", "--steps", STEPS),)))
"""The program is ours: it logs each step, saves nothing and makes its data up."""

SHORT_RUNS: Mapping[str, ShortRun] = MappingProxyType(
    {
        "megatron-lm": _megatron(),
        "megatron-bridge": _bridge(),
        "torchtitan": _torchtitan(),
        "deepspeed": DEEPSPEED,
        "arctic-training": ARCTIC_TRAINING,
        "fsdp2": FSDP2,
    }
)
"""Trial of every runtime whose launches print step times."""
