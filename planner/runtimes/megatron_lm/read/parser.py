"""The words after `pretrain_gpt.py`, as the runtime's own parser takes them.

Rules of Python's `argparse` with abbreviations off; the options are the recorded ones of the
release that the exporter writes for, so both sides know the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal

from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments, Given, Option, shown
from trainplan.planner.runtimes.megatron_lm.read.patterns import integers, pattern
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM
from trainplan.planner.shell import Problem, Word

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "--use-custom-fsdp": "--use-megatron-fsdp",
        "--moe-extended-tp": "--expert-tensor-parallel-size",
        "--moe-expert-parallel-size": "--expert-model-parallel-size",
        "--layernorm-epsilon": "--norm-epsilon",
        "--num-key-value-heads": "--group-query-attention --num-query-groups",
        "--rotary-position-embeddings-theta": "--rotary-base",
        "--distribute-checkpointed-activations": "--distribute-saved-activations",
        "--checkpoint-num-layers": "--recompute-num-layers",
        "--pipeline-model-parallel-split-rank": "--pipeline-model-parallel-layout",
        "--standalone-embedding-stage": "--account-for-embedding-in-pipeline-split",
        "--cpu-optimizer": "--optimizer-cpu-offload",
        "--overlap-p2p-communication": "nothing, it is the default with virtual stages",
        "--use-legacy-models": "nothing, there is one kind of model",
        "--DDP-impl": "nothing, there is one kind",
        "--no-async-tensor-model-parallel-allreduce": "nothing, it always is",
        "--no-query-key-layer-scaling": "nothing, it is the default",
        "--zero-stage": "--use-distributed-optimizer, or --use-megatron-fsdp",
    }
)
"""Options of older releases and of Megatron-DeepSpeed, and what stands for them now.

Source: `megatron/training/arguments.py` of sail-sg/zero-bubble-pipeline-parallelism @39f2c186 and
`megatron/arguments.py` of deepspeedai/Megatron-DeepSpeed @4efb479d, compared with this release.
"""
LARGEST = 10**12
"""Of a whole number; no option means more, and lists of so many entries would fill the memory."""
HELPED = 50
"""Of so many problems the likely meaning is looked for; a file with more is another program's."""
OF_PACKAGE = ("--export-", "--modelopt-enabled", "--enable-gpt-oss", "--finetune-")
"""Beginnings of options that only the package nvidia-modelopt adds.

Source: `megatron/post_training/arguments.py`; `pretrain_gpt.py:526`.
"""
ActionKind = Literal["store", "store_true", "store_false", "boolean"]


@cache
def options() -> Mapping[str, Option]:
    """Every option of the release, by its name."""
    recorded = resources.files("trainplan.planner.runtimes").joinpath(MEGATRON_LM.recorded_flags)
    entries: dict[str, dict[str, Any]] = json.loads(recorded.read_text("utf-8"))["flags"]
    return MappingProxyType({flag: _option(flag, entry) for flag, entry in entries.items()})


def _option(flag: str, entry: Mapping[str, Any]) -> Option:
    action: ActionKind = entry.get("action", "store")
    off = {"store": None, "store_true": False, "store_false": True, "boolean": None}[action]
    choices = entry.get("choices")
    return Option(
        flag=flag,
        dest=entry.get("dest", flag.removeprefix("--").replace("-", "_")),
        action=action,
        nargs=entry.get("nargs"),
        type=entry.get("type", "str"),
        choices=None if choices is None else tuple(map(str, choices)),
        default=_frozen(entry.get("default", off)),
    )


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def parse(words: Sequence[Word]) -> tuple[Arguments, tuple[Problem, ...]]:
    """What the words set, and what the parser would stop at; the last of a repeated option wins."""
    given: dict[str, Given] = {}
    problems: list[Problem] = []
    place = 0
    while place < len(words):
        word = words[place]
        if not word.text.startswith("--"):
            strays = tuple(takewhile(lambda w: not w.text.startswith("--"), words[place:]))
            problems += _strays(strays, words[place - 1] if place else None)
            place += len(strays)
            continue
        flag, equals, attached = word.text.partition("=")
        option = options().get(flag)
        follow = tuple(takewhile(_is_value, words[place + 1 :]))
        if option is None:
            problems.append(_unknown(flag, word, near=len(problems) < HELPED))
            place += 1 + len(follow)
            continue
        if equals:
            follow = (Word(attached, word.place, word.unresolved),)
        taken = follow[: _most(option)]
        problems += _wrong(option, word, taken, attached=bool(equals))
        given[option.dest] = _given(option, word, taken)
        place += 1 if equals else 1 + len(taken)
    everything = {option.dest: option for option in options().values()}
    return Arguments(everything, given), tuple(problems)


def _is_value(word: Word) -> bool:
    """Negative numbers are values, for no option looks like one; an unknown `$X` may be."""
    text = word.text
    return not text.startswith("-") or _number(text) or len(text) == 1 or " " in text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _most(option: Option) -> int | None:
    """Values it takes at most; null: all that follow."""
    if option.action != "store":
        return 0
    if isinstance(option.nargs, int):
        return option.nargs
    return 1 if option.nargs is None else None


def _wrong(
    option: Option, word: Word, taken: Sequence[Word], *, attached: bool
) -> Iterator[Problem]:
    """What `argparse` says of the values of one option."""
    least = {"+": 1, "*": 0, None: 1}.get(option.nargs, option.nargs)  # type: ignore[arg-type]
    if option.action != "store":
        if attached:
            says = f"{option.flag} is a switch and takes no value: write it alone, or leave it out"
            yield Problem("bad_value", "illegal", says, word.place)
        return
    if isinstance(least, int) and len(taken) < least:
        says = f"{option.flag} needs {least} value{'s' if least > 1 else ''}: write it behind"
        yield Problem("missing_value", "illegal", says, word.place)
    for value in taken:
        if not value.unresolved and (wanted := _refused(option, value.text)):
            says = f"{option.flag} {shown(value.text)}: expected {wanted}"
            yield Problem("bad_value", "illegal", says, value.place)


def _refused(option: Option, text: str) -> str | None:
    """What was expected instead; null: the text is taken."""
    try:
        value = convert(option, text)
    except ValueError:
        kinds = {"int": "a whole number", "float": "a number", "integers": "whole numbers"}
        return kinds.get(option.type, "a number, or a list such as ([0]*3+[1]*58)")
    if option.choices is not None and str(value) not in option.choices:
        return "one of " + ", ".join(option.choices)
    return None


def convert(option: Option, text: str) -> object:
    """The value as the runtime has it.

    Raises:
        ValueError: It cannot be one.
    """
    if option.type == "int":
        number = int(text)
        if abs(number) > LARGEST:
            raise ValueError("too large")
        return number
    if option.type == "float":
        return float(text)
    if option.type == "pattern":
        return pattern(text)
    return integers(text) if option.type == "integers" else text


def _given(option: Option, word: Word, taken: Sequence[Word]) -> Given:
    unresolved = tuple(name for value in (word, *taken) for name in value.unresolved)
    written = " ".join((word.text, *(v.text for v in taken if v.text not in word.text)))
    return Given(_value(option, taken), option.flag, written, word.place, unresolved)


def _value(option: Option, taken: Sequence[Word]) -> object:
    """Default where it cannot be read; a problem says so."""
    if option.action != "store":
        negative = option.action == "store_false" or option.flag.startswith("--no-")
        return option.action == "store_true" or (option.action == "boolean" and not negative)
    if not taken or any(value.unresolved or _refused(option, value.text) for value in taken):
        return option.default
    values = tuple(convert(option, value.text) for value in taken)
    return values[0] if option.nargs is None else values


def _strays(words: Sequence[Word], before: Word | None) -> Iterator[Problem]:
    """Words of no option: each that only a run tells, and one problem of all others."""
    yield from (_unread(word) for word in words if word.unresolved)
    known = [word for word in words if not word.unresolved]
    if known:
        behind = f" behind {before.text[:40]!r}" if before else ""
        texts = ", ".join(repr(word.text[:40]) for word in known[:3]) + ", ..." * (len(known) > 3)
        says = f"{texts}{behind} belongs to no option: take it out, or quote it as one value"
        yield Problem("unknown_flag", "illegal", says, known[0].place)


def _unread(word: Word) -> Problem:
    says = (
        f"{shown(word.text)} is known to a run alone and taken for nothing: say what it holds with "
        f"--set {word.unresolved[0].strip('${}')}=VALUE"
    )
    return Problem("unread_words", "unread", says, word.place)


def _unknown(flag: str, word: Word, *, near: bool) -> Problem:
    """What is wrong with it; `near`: and which option may be meant."""
    if word.unresolved:
        return _unread(word)
    if flag.startswith(OF_PACKAGE):
        says = f"{shown(flag)} is an option where nvidia-modelopt is installed, and nowhere else"
        return Problem("package_flag", "unread", says, word.place)
    if flag in RENAMED:
        now = f"now {RENAMED[flag]}"
    else:
        close = get_close_matches(flag, options(), n=1, cutoff=0.8) if near else []
        now = f"did you mean {close[0]}?" if close else "take it out"
    says = f"{shown(flag)} is no option of this release: {now}"
    return Problem("unknown_flag", "illegal", says, word.place)
