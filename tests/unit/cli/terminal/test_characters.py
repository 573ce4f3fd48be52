"""Streams that lack our characters, and how wide pages are."""

import io
import json
import os
import shlex
import shutil

import pytest

from trainplan.cli.blocks.blocks import Column, number, table
from trainplan.cli.blocks.shown import page_text, section
from trainplan.cli.terminal import output
from trainplan.cli.terminal.characters import BLOCKS, SIGNS, encoding_of, plain, spelled
from trainplan.cli.terminal.text import NARROWEST, WIDEST, WIDTH
from trainplan.cli.words.numbers import DOT


class Stream(io.StringIO):
    """A stream of an encoding, with a terminal behind it or without."""

    def __init__(self, encoding, *, terminal=True):
        super().__init__()
        self._encoding, self._terminal = encoding, terminal

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._terminal


def test_bars_and_dots_are_drawn_with_ascii_where_that_is_all_there_is():
    assert plain("██▌▏", "ascii") == "##=-"
    assert plain(f"tp 4{DOT}pp 4 → 2 ≤ 7", "ascii") == "tp 4 | pp 4 > 2 < 7"
    assert plain("".join((*BLOCKS, *SIGNS)), "ascii").isascii()


def test_a_stream_that_has_them_gets_them():
    assert plain("█▏ · →", "utf-8") == "█▏ · →"
    assert plain("█▏ · →", "latin-1") == "#- · >"


def test_bars_are_of_one_kind_where_a_stream_has_but_some_of_their_characters():
    assert plain("█▌▏", "cp437") == "#=-"


def test_columns_stay_where_they_are():
    text = "".join((*BLOCKS, *SIGNS))
    assert len(plain(text, "ascii")) == len(text)


def test_any_other_character_is_spelled_so_that_json_reads_it_back():
    document = json.dumps({"name": "café 😀 ░"}, ensure_ascii=False)
    text = spelled(document, "ascii")
    assert text.isascii()
    assert json.loads(text) == {"name": "café 😀 ░"}
    assert spelled(document, "utf-8") == document


@pytest.mark.parametrize(
    ("locale", "terminal", "encoding"),
    [
        ({"LC_ALL": "C"}, True, "ascii"),
        ({"LANG": "POSIX"}, True, "ascii"),
        ({"LANG": "C"}, False, "utf-8"),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, True, "utf-8"),
        ({"LANG": "C", "PYTHONIOENCODING": "utf-8"}, True, "utf-8"),
        ({}, True, "utf-8"),
    ],
)
def test_a_terminal_whose_locale_knows_ascii_alone_gets_ascii(
    locale, terminal, encoding, monkeypatch
):
    for name in ("LC_ALL", "LANG", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert encoding_of(Stream("utf-8", terminal=terminal)) == encoding
    assert encoding_of(io.StringIO()) == encoding_of(None) == "utf-8"


@pytest.mark.parametrize(
    ("columns", "terminal", "width"),
    [
        (80, True, 80),
        (20, True, NARROWEST),
        (400, True, WIDEST),
        (80, False, WIDTH),
    ],
)
def test_pages_are_as_wide_as_the_terminal(columns, terminal, width, monkeypatch):
    monkeypatch.setattr("sys.stdout", Stream("utf-8", terminal=terminal))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    assert output.page_width() == width


def test_columns_of_the_environment_say_how_wide_a_terminal_is(monkeypatch):
    monkeypatch.setattr("sys.stdout", Stream("utf-8"))
    monkeypatch.setenv("COLUMNS", "63")
    assert output.page_width() == 63


TABLE = table(
    "",
    ("layout", number("step"), number("speed"), Column("", bar=12)),
    [("tensor 2", "1.25 s", "1,234", 1.0), ("tensor 4", "11.25 s", "123", 0.5)],
    spare=("speed",),
)


def shown(width):
    return page_text(TABLE, width=width).splitlines()


def test_a_table_that_fits_is_whole():
    assert shown(60) == [
        "layout       step  speed",
        "tensor 2   1.25 s  1,234  ████████████",
        "tensor 4  11.25 s    123  ██████",
    ]


def test_a_narrow_table_closes_up_and_lets_bars_go_before_numbers():
    assert shown(24)[1] == "tensor 2   1.25 s  1,234"
    assert shown(22)[1] == "tensor 2  1.25 s 1,234"


def test_a_column_that_goes_is_named_with_what_shows_it():
    lines = shown(20)
    assert lines[:3] == ["layout       step", "tensor 2   1.25 s", "tensor 4  11.25 s"]
    assert " ".join(lines[3:]) == (
        "not shown for lack of room: speed; a terminal of 35 columns or --json has all"
    )


def test_a_table_without_a_column_to_spare_becomes_paragraphs_with_every_number():
    heads = map(number, ("rank", "activations", "freed at the end"))
    held = table("", (*heads, Column("", bar=9)), [("0", "4.2", "1.0", 1.0)])
    assert page_text(held, width=24).splitlines() == [
        "rank 0 ·",
        "  activations 4.2 ·",
        "  freed at the end 1.0",
    ]


def test_a_command_that_is_too_long_for_a_line_can_still_be_pasted():
    command = "plan export 'my plan.json' --launcher torchrun --output-dir launch"
    part = section("Next", command, "plan verify x")
    for width in range(40, 80):
        title, *lines = page_text(part, width=width).splitlines()
        assert title == "Next"
        assert max(map(len, lines)) <= width
        assert lines[-1] == "  plan verify x"
        pasted = "\n".join(lines[:-1]).replace("\\\n", "")
        assert shlex.split(pasted) == shlex.split(command)
        assert (len(lines) == 2) == (width >= len(command) + 2)
