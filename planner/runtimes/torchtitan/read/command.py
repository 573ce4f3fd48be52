"""Arguments of `torchtitan.train`: which config, and what is set over it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainplan.planner.runtimes.keys import Entry
from trainplan.planner.runtimes.python_source import Made, Unread
from trainplan.planner.runtimes.torchtitan.keys import CHECKPOINT
from trainplan.planner.runtimes.torchtitan.read.config import Config
from trainplan.planner.runtimes.torchtitan.write.facts import keys
from trainplan.planner.shell import Place, Problem, Verdict, Word

SUBCOMMANDS = {
    "activation-checkpoint:none": None,
    "activation-checkpoint:full": "FullAC.Config",
    "activation-checkpoint:selective": "SelectiveAC.Config",
    "activation-checkpoint:memory-budget": "MemoryBudgetAC.Config",
}
"""Source: torchtitan/distributed/activation_checkpoint.py, ActivationCheckpointingConfig."""
OLD_MODE = "activation_checkpoint.mode"
"""Option of releases that had TOML for one of these."""
SELECTORS = ("module", "config", "job.config_file", "config_file")


class Option(NamedTuple):
    """`--name value`, or a switch."""

    name: str
    """Without dashes in front, and with underscores."""
    value: Word | None
    word: Word


def options(arguments: Sequence[Word]) -> Iterator[Option | Word]:
    """The options in order, and what is none."""
    i = 0
    while i < len(arguments):
        word = arguments[i]
        i += 1
        if not word.text.startswith("--"):
            yield word
            continue
        name, equals, text = word.text[2:].partition("=")
        value = Word(text, word.place, word.unresolved) if equals else None
        if value is None and i < len(arguments) and not _is_option(arguments[i].text):
            value = arguments[i]
            i += 1
        yield Option(name.replace("-", "_"), value, word)


def _is_option(text: str) -> bool:
    return text.startswith("--") or text in SUBCOMMANDS


def selected(arguments: Sequence[Word]) -> dict[str, Word]:
    """Values of the options that select a config; the last of each."""
    return {
        option.name: option.value
        for option in options(arguments)
        if isinstance(option, Option) and option.name in SELECTORS and option.value
    }


def override(config: Config, arguments: Sequence[Word]) -> None:
    """Set what the command sets over a config; what no key is stops the runtime."""
    for option in options(arguments):
        if isinstance(option, Word):
            _bare(config, option)
        elif option.name not in SELECTORS:
            _set(config, option)


def _bare(config: Config, word: Word) -> None:
    if word.text in SUBCOMMANDS:
        kind = SUBCOMMANDS[word.text]
        value = None if kind is None else Made(kind, 0)
        config.entries[CHECKPOINT] = Entry(value, "stated", word.text, word.place)
        return
    says = f"{word.text!r} is no option of torchtitan: delete it"
    strict = config.notes.strict and not word.unresolved
    verdict: Verdict = "illegal" if strict else "unread"
    config.notes.problem("unknown_argument", verdict, says, word.place)


def _set(config: Config, option: Option) -> None:
    if option.name == OLD_MODE and option.value is not None:
        _bare(config, replace(option.value, text=f"activation-checkpoint:{option.value.text}"))
        return
    section, dot, last = option.name.rpartition(".")
    off = last.startswith("no_") and f"{section}{dot}{last[3:]}" in keys()
    name = f"{section}{dot}{last[3:]}" if off else option.name
    if name not in keys() and not name.startswith(OPEN):
        config.notes.problems.append(_unknown(name, option.word.place, strict=config.notes.strict))
        return
    text = option.word.text if option.value is None else f"{option.word.text} {option.value.text}"
    if option.value is not None and option.value.unresolved:
        value: object = Unread(option.word.place.line or 0, option.value.text)
    elif option.value is None:
        value = not off
    else:
        value = literal(option.value.text)
    config.entries[name] = Entry(value, "stated", text, option.word.place)


def _unknown(name: str, place: Place, *, strict: bool) -> Problem:
    """A key of another release; where it bears on the step, the launch is undecided."""
    if strict:
        says = f"torchtitan has no key {name}: correct or delete it"
        return Problem("unknown_key", "illegal", says, place)
    says = f"{name}: own of a fork or another release; the price is without"
    return Problem("unknown_key", "unread", says, place, absent=name.startswith(PRICED))


PRICED = ("training.", "parallelism.", "activation_checkpoint.", "model.", "float8.")
"""Sections that bear on the step."""
OPEN = ("dataloader", "tokenizer", "optimizer", "checkpoint", "validator", "metrics", "profiler",
        "lr_scheduler", "loss", "override", "activation_checkpoint")  # fmt: skip
"""Sections with keys of the chosen class, which say nothing of the layout."""


def literal(text: str) -> object:
    """A number, a flag, a list or the text."""
    if text in ("True", "true"):
        return True
    if text in ("False", "false"):
        return False
    if text in ("None", "none"):
        return None
    try:
        return int(text)
    except ValueError:
        return text.split(",") if "," in text else text
