"""A name of 5,000 characters is refused in a line that one can read, whatever takes it."""

import click
import pytest

from tests.e2e.command import TINY, Outcome, plan
from tests.e2e.test_commands import command_of, commands
from trainplan.cli.main import plan as group

LONG = 5000
LONGEST_LINE = 2_200
REPEATED = 250
"""Characters of what was typed that a line may repeat."""
TEXTS = (
    "x" * LONG,
    "9" * LONG,
    "x=" * (LONG // 2),
    "a," * (LONG // 2),
    "x " * (LONG // 2),
    "8x8:" + "h" * LONG,
)
REST = {
    "search": (*TINY, "--time-limit", "0.05"),
    "estimate": (*TINY, "--layout", "tp=1"),
    "why-not": ("plan.json", "--layout", "tp=1"),
    "sweep": ("plan.json", "--vary", "gpus=8,16"),
    "replan": ("plan.json", "--lost", "1"),
    "schedule": ("--kind", "1f1b", "--pp", "2", "--num-microbatches", "2"),
    "check": ("train.sh",),
    "import": ("nccl-tests", "missing.txt", "--gpu", "l4", "--output", "x.json"),
}
"""What a command needs beside; files that are not there end those that read one."""

STARTS = {("profile", "--rdzv-endpoint"), ("profile", "--model")}
"""What is read by processes that are started, or after them."""


def takers() -> list[tuple[tuple[str, ...], str]]:
    """Every option and argument of every command that takes a text."""
    found = []
    for path in commands(group):
        for each in command_of(path).params:
            text = not (isinstance(each, click.Option) and each.is_flag)
            if text and (path[0], each.opts[0]) not in STARTS:
                found.append((path, each.opts[0]))
    return found


def typed(path: tuple[str, ...], name: str, text: str) -> Outcome:
    rest = REST.get(path[0], ())
    if name.startswith("--"):
        return plan(*path, *rest, name, text)
    options = next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))
    return plan(*path, text, *rest[options:])


@pytest.mark.parametrize(
    ("path", "name"), takers(), ids=lambda x: x if isinstance(x, str) else "-".join(x)
)
def test_a_name_of_5000_characters_is_not_repeated_whole(path: tuple[str, ...], name: str):
    for text in TEXTS:
        outcome = typed(path, name, text)
        assert outcome.code in (0, 2), outcome.err[:500]
        assert outcome.out or len(outcome.err.splitlines()) == 1
        assert len(outcome.err) < LONGEST_LINE
        words = (outcome.out + outcome.err).split()
        assert max(map(len, words), default=0) <= REPEATED, max(words, key=len)[:300]
