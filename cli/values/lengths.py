"""What `--lengths` names: a histogram of sequence lengths in a file, or a distribution."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from trainplan.cli.files import read_text
from trainplan.costmodel.base import SpecError, read_json, read_number
from trainplan.costmodel.job import LengthSpec, Lognormal, Packing, TrainingSpec
from trainplan.costmodel.spec import LARGEST_SIZE, first_complaint, shown

DISTRIBUTION = "lognormal:"
HEADER = ["length", "count"]
Entry = tuple[str, object, object]
"""Place of a length, the length, and how often it occurs."""


def with_lengths(training: TrainingSpec, text: str | None, packing: Packing | None) -> TrainingSpec:
    """The training of `--lengths` and `--packing`.

    Raises:
        SpecError: The histogram is wrong, or a sequence is longer than a row.
        FileError: The file cannot be read.
    """
    if text is None:
        if packing not in (None, "none"):
            raise SpecError(
                f"--packing {packing} needs --lengths: sequences that all fill a row are not packed"
            )
        return training
    lengths = _distribution(text) if text.startswith(DISTRIBUTION) else _histogram(Path(text))
    stated = {**dict(training), "lengths": lengths, "packing": packing or "none"}
    try:
        return TrainingSpec.model_validate(stated)
    except ValidationError as error:
        raise SpecError(f"--lengths {text}: {first_complaint(error).reason}") from None


def _distribution(text: str) -> LengthSpec:
    parts = text.removeprefix(DISTRIBUTION).split(",")
    try:
        typed, spread = parts
        mean, sigma = float(read_number(typed, "length")), float(spread)
    except (ValueError, SpecError):
        raise SpecError(
            f"--lengths {text}: write lognormal:MEAN,SIGMA, the mean in tokens and the standard "
            "deviation of the logarithm, such as lognormal:4096,1.5"
        ) from None
    try:
        return LengthSpec(lognormal=Lognormal(mean=mean, sigma=sigma))
    except ValidationError as error:
        first = first_complaint(error)
        raise SpecError(f"--lengths {text}: {first.place[-1]} {first.reason}") from None


def _histogram(path: Path) -> LengthSpec:
    text = read_text(path, expected="CSV or JSON")
    entries = _of_json(path, text) if path.suffix.lower() == ".json" else _of_csv(path, text)
    counts: dict[int, float] = {}
    for length, count in map(_checked, entries):
        counts[length] = counts.get(length, 0.0) + count
    if not counts:
        raise SpecError(f"{path}: no lengths: write a line LENGTH,COUNT for each")
    try:
        return LengthSpec(counts=tuple(sorted(counts.items())))
    except ValidationError as error:
        raise SpecError(f"{path}: {first_complaint(error).reason}") from None


def _of_csv(path: Path, text: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word.strip() for word in line.split(",")]
        if words == [""] or (number == 1 and words == HEADER):
            continue
        if len(words) != len(HEADER):
            raise SpecError(f"{path} line {number}: {shown(line)}: write LENGTH,COUNT")
        length, count = map(_number, words)
        yield f"{path} line {number}", length, count


def _number(word: str) -> object:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _of_json(path: Path, text: str) -> Iterator[Entry]:
    try:
        document = read_json(text)
    except ValueError as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    entries: Iterable[object]
    if isinstance(document, dict):
        entries = ([_number(length), count] for length, count in document.items())
    elif isinstance(document, list):
        entries = document
    else:
        entries = [document]
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, list) or len(entry) != len(HEADER):
            raise SpecError(
                f"{path} entry {number}: {shown(entry)}: write "
                '[[LENGTH, COUNT], ...] or {"LENGTH": COUNT, ...}'
            )
        length, count = entry
        yield f"{path} entry {number}", length, count


def _checked(entry: Entry) -> tuple[int, float]:
    where, length, count = entry
    if isinstance(length, bool) or not isinstance(length, int):
        raise SpecError(f"{where}: length {shown(length)} is no whole number of tokens")
    if not 1 <= length <= LARGEST_SIZE:
        raise SpecError(f"{where}: length {shown(length)}: must be 1 to {LARGEST_SIZE}")
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not _is_finite(count):
        raise SpecError(f"{where}: count {shown(count)} is no number")
    if count < 0:
        raise SpecError(f"{where}: count {shown(count)} is negative: counts are 0 or more")
    return length, float(count)


def _is_finite(count: float) -> bool:
    """Is it a number that a float holds?"""
    try:
        return math.isfinite(count)
    except OverflowError:
        return False
