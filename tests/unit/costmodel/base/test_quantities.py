"""Numbers as they are typed: one table of suffixes by kind, whatever option they are of."""

import click
import pytest

from trainplan.cli.main import plan
from trainplan.cli.options.parameters import Seconds, Whole
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.base.quantities import WRITTEN, read_number
from trainplan.planner.comparisons.parameters import parse_varied

FEW = 10_000
"""A number up to here is short without a suffix."""
PLAIN = {"--one-rank", "--node-rank", "--candidate"}
"""Numbers of a rank, which are no quantities."""


@pytest.mark.parametrize("kind", WRITTEN)
def test_every_suffix_multiplies_the_number_before_it(kind):
    for suffix, factor in WRITTEN[kind].factors.items():
        assert read_number(f"1.5{suffix}", kind) == 1.5 * factor
        assert read_number(f"2e1{suffix}", kind) == 20 * factor


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("128k", "length", 131_072),
        ("1M", "length", 2**20),
        ("4k", "count", 4_000),
        ("200B", "count", 200 * 10**9),
        ("200b", "count", 200 * 10**9),
        ("1_000,000", "count", 10**6),
        ("2w", "duration", 14 * 86_400),
        ("5y", "duration", 5 * 365 * 86_400),
        ("50GB/s", "rate", 50 * 10**9),
        ("400Gb/s", "rate", 50 * 10**9),
        ("1.5 TiB", "size", 3 * 2**39),
    ],
)
def test_numbers_are_what_a_reader_takes_them_for(text, kind, number):
    assert read_number(text, kind) == number


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("text", ["", "k", "-1", "1x", "0x1", "1e999", "nan", "inf", "1 2", "²"])
def test_what_is_no_number_is_refused_with_the_forms(text, kind):
    with pytest.raises(SpecError, match="write") as refused:
        read_number(text, kind)
    assert WRITTEN[kind].forms in str(refused.value)


@pytest.mark.parametrize("kind", WRITTEN)
def test_every_form_that_a_message_names_is_read(kind):
    forms = WRITTEN[kind].forms.replace(" or ", ", ").split(", ")
    for form in forms:
        read_number(form.partition(" (")[0], kind)


@pytest.mark.parametrize("text", ["30", "30Gb", "5 m"])
def test_a_unit_that_may_be_another_is_not_guessed(text):
    for kind in ("size", "duration"):
        with pytest.raises(SpecError):
            read_number(text, kind)


def commands(group):
    for name in group.list_commands(None):
        one = group.get_command(None, name)
        yield from commands(one) if isinstance(one, click.Group) else [one]


def test_every_option_of_a_large_number_takes_suffixes():
    """Those that take texts read them with the same function: tokens, deadlines, sizes, limits."""
    missing = [
        (command.name, *one.opts)
        for command in commands(plan)
        for one in command.params
        if isinstance(one.type, click.IntRange | click.FloatRange)
        and not isinstance(one.type, Whole | Seconds)
        and (one.type.max is None or one.type.max > FEW)
        and not PLAIN & {*one.opts}
        and one.metavar != "TIME"  # of a schedule: in any unit
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seq_length=4k,128k", ("4096", "131072")),
        ("seq_length=4k..16k", ("4096", "8192", "16384")),
        ("global_batch_size=1k..4k", ("1000", "2000", "4000")),
        ("nic=0.5,2", ("0.5", "2")),
        ("gpu=h100,a100", ("h100", "a100")),
    ],
)
def test_a_sweep_reads_the_same_numbers(text, values):
    assert parse_varied(text).values == values


@pytest.mark.parametrize("text", ["9999999999999y", "1000.1y", "1e12d"])
def test_a_duration_has_an_end(text):
    with pytest.raises(SpecError, match="is longer than 1,000 years: give less"):
        read_number(text, "duration")


@pytest.mark.parametrize("text", ["seq_length=4k,4096", "global_batch_size=4q", "gpus=1.0005k"])
def test_a_sweep_refuses_what_is_no_number_or_stands_twice(text):
    with pytest.raises(SpecError):
        parse_varied(text)
