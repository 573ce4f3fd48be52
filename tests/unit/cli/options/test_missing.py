"""All that lacks is told at once, with a command that would work."""

import shlex

import pytest

from tests.e2e.command import plan, refused
from trainplan.cli.values import machine


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "visible_gpus", lambda: None)


def example_of(line: str) -> list[str]:
    """The command between the marks of a refusal."""
    return shlex.split(line.split("`")[1])[1:]


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ((), ["--model", "--cluster", "--global-batch-size", "--seq-length"]),
        (("--model", "gpt2"), ["--cluster", "--global-batch-size", "--seq-length"]),
        (("--gpus", "8", "--gpu", "h100"), ["--model", "--global-batch-size", "--seq-length"]),
        (("--cluster", "8xh100", "--seq-length", "8"), ["--model", "--global-batch-size"]),
        (("--objective", "context", "--cluster", "8xh100", "--model", "gpt2"), ["-batch-size"]),
    ],
)
def test_a_search_names_all_it_lacks(typed: tuple[str, ...], missing: list[str]):
    line = refused(plan("search", *typed))
    named = line.split("missing ")[1].split(", such as in")[0]
    assert [one for one in missing if one not in named] == []
    assert named.count("--") == len(missing)
    added = ("--search-options", "--time-limit", "none")
    words = [word for word in example_of(line) if word not in added]
    assert words[: 1 + len(typed)] == ["search", *typed]


def test_the_example_of_an_estimate_works():
    line = refused(plan("estimate", "--seq-length", "512"))
    assert plan(*example_of(line)).code == 0


def test_arguments_are_named_with_options():
    assert example_of(refused(plan("why-not"), "missing PLAN")) == [*("why-not", "plan.json")]
    refused(plan("compare"), "missing FIRST and SECOND")
    refused(plan("schedule", "--kind", "1f1b"), "missing --pp and --num-microbatches")


def test_the_longest_sequence_needs_no_length_but_a_front_does():
    job = ("--model", "gpt2", "--cluster", "8xh100", "--global-batch-size", "8")
    front = ("--objective", "context", "--pareto", "time,memory")
    refused(plan("search", *job, *front), "missing --seq-length")


def test_a_long_command_line_is_not_repeated():
    assert len(refused(plan("search", "--model", "x" * 5000))) < 400


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("search", "--pareto"), "--pareto needs a value, A,B, such as `--pareto time,memory`"),
        (("sweep", "p.json", "--vary"), "--vary needs a value, KNOB=VALUES, such as `--vary gpus"),
        (("search", "-o"), "-o needs a value, PATH"),
    ],
)
def test_an_option_without_its_value_names_what_it_takes(typed: tuple[str, ...], says: str):
    assert says in refused(plan(*typed))
