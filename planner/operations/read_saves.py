"""How often and how a launch saves, as its own words say: those of `settings.toml`, read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from trainplan.planner.operations.saves import settings_table
from trainplan.planner.runtimes import EXPORTERS, Field, Reading
from trainplan.planner.shell import Launch, Problem, Word

SAVE_STEPS, SAVE_WAY = "run.save_steps", "cluster.failures.save"
"""Fields of a reading."""
WAYS = ("local", "async", "sync")
"""The one with most words first."""
UNREAD = frozenset(("foreign_format", "unread_words"))
"""Problems with which arguments are not all there: a project on the runtime saves by its own keys,
and variables that are not set may hold any."""
Given = Mapping[str, tuple[str, Word]]


def with_saves_read(launch: Launch, reading: Reading) -> Reading:
    """The same with the fields `SAVE_STEPS` and `SAVE_WAY` of what the launch itself states.

    What a file or a recipe sets is not read, and makes no field; 0 steps: it saves nothing. Where
    the cluster states its failures, the launch's own way to save takes the place of that.
    """
    whole = UNREAD.isdisjoint(one.cause for one in reading.problems)
    fields = tuple(_read(reading.runtime, _given(launch), whole=whole))
    job, problems = reading.job, reading.problems
    way = next((one for one in fields if one.name == SAVE_WAY), None)
    failures = job.cluster.failures if job else None
    if job and failures and way and way.value != failures.save:
        if way.value != "local" and failures.checkpoint_gb_per_s is None:
            says = f"the launch saves {way.value}, and nothing states how fast: give --checkpoint"
            problems = (*problems, Problem("save_rate", "unread", says, way.place))
        else:
            own = failures.model_copy(update={"save": way.value})
            cluster = job.cluster.model_copy(update={"failures": own})
            job = job.model_copy(update={"cluster": cluster})
    return replace(reading, job=job, fields=(*reading.fields, *fields), problems=problems)


def _given(launch: Launch) -> Given:
    """Values by option or key, of a switch an empty one; of a repeated option the last."""
    given: dict[str, tuple[str, Word]] = {}
    for word, after in zip_longest(launch.arguments, launch.arguments[1:]):
        name, equals, value = word.text.partition("=")
        if not equals and after is not None and not after.text.startswith("--"):
            value = after.text
        given[name] = value, word
    return given


def _read(runtime: str, given: Given, *, whole: bool) -> Iterator[Field]:
    """`whole`: what is not among the arguments is not set."""
    rows = [one for one in settings_table()["setting"] if "saves" in one and runtime in one]
    ways = [way for way in WAYS if runtime in EXPORTERS and way in EXPORTERS[runtime].saves]
    words = {way: [t for row in rows if way in row["saves"] for t in row[runtime]] for way in ways}
    fixed = {way: [one for one in words[way] if not re.search(r"[{$]", one)] for way in ways}
    way = next((one for one in ways if fixed[one] and _are_there(fixed[one], given)), None)
    if way:
        word = given[_flag(fixed[way][0])][1]
        yield Field(SAVE_WAY, way, "stated", " ".join(fixed[way]), word.place)
    elif whole and runtime in settings_table()["by_command"]:
        way = "sync"
        yield Field(SAVE_WAY, way, "default")
    folder = settings_table()["save_folder"].get(runtime)
    if whole and folder and folder not in given:
        yield Field(SAVE_STEPS, 0, "default", folder)
        return
    for text in words.get(way or "sync", ()):
        value, place = given.get(_flag(text), ("", None))
        number = r"\d{1,9}" if folder else r"[1-9]\d{0,8}"
        if "{save_steps}" in text and place and re.fullmatch(number, value):
            yield Field(SAVE_STEPS, int(value), "stated", f"{_flag(text)} {value}", place.place)


def _are_there(texts: list[str], given: Given) -> bool:
    """Is each with its value?"""
    return all(given.get(_flag(one), (None,))[0] == one[len(_flag(one)) + 1 :] for one in texts)


def _flag(text: str) -> str:
    return re.split("[= ]", text)[0]
