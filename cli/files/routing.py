"""Tokens per expert, from a file or from what Megatron-LM writes.

Megatron-LM's `--save-tokens-per-expert-interval` writes a folder `tokens_per_expert` with a file
`rankN.jsonl` of every rank, one line for each layer and iteration: rows of the rank's own experts,
by micro batch. Source: Megatron-LM @d98e8a64 `megatron/training/activation_logging.py`, save_tpe.
Plain files hold one line of counts for each layer (CSV), or lists of them (JSON).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from trainplan.cli.files.disk import FileError, read_records
from trainplan.cli.files.readable import is_folder, names_in
from trainplan.costmodel.base import read_json
from trainplan.costmodel.job import RoutingSpec
from trainplan.costmodel.spec import first_complaint

RANK_FILE = re.compile(r"rank(\d{1,7})\.jsonl")
EXPECTED = (
    "expected counts of tokens per expert: a line of numbers for each layer (CSV), a list of them "
    "(JSON), or the files of Megatron-LM's --save-tokens-per-expert-interval"
)
LayerName = tuple[str, int, int]
Counts = list[float]


def load_routing(path: Path) -> RoutingSpec:
    """How often each expert was chosen.

    Raises:
        FileError: The file or folder is missing or holds no counts.
    """
    layers = _of_folder(path) if is_folder(path) else _of_text(path, read_records(path))
    try:
        return RoutingSpec(
            kind="measured", tokens_per_expert=tuple(map(tuple, layers)), source=str(path)
        )
    except ValidationError as error:
        raise FileError(f"{path}: {first_complaint(error).reason}") from error


def _of_folder(path: Path) -> list[Counts]:
    """Counts of each layer, those of its ranks one after the other."""
    named = [(RANK_FILE.fullmatch(name), path / name) for name in names_in(path)]
    files = sorted((int(match[1]), one) for match, one in named if match)
    if not files:
        inner = path / "tokens_per_expert"
        if is_folder(inner):
            return _of_folder(inner)
        raise FileError(f"{path}: no file rankN.jsonl in it: {EXPECTED}")
    layers: dict[LayerName, Counts] = {}
    for _, file in files:
        for name, counts in _summed(file, read_records(file)).items():
            layers.setdefault(name, []).extend(counts)
    return [layers[name] for name in sorted(layers)]


def _of_text(path: Path, text: str) -> list[Counts]:
    if text.lstrip().startswith("{") and '"tpe"' in text:
        summed = _summed(path, text)
        return [summed[name] for name in sorted(summed)]
    if text.lstrip().startswith(("[", "{")):
        return _of_json(path, text)
    return list(_of_lines(path, text))


def _summed(path: Path, text: str) -> dict[LayerName, Counts]:
    """Rows of a rank's own experts over all iterations and micro batches, by layer."""
    layers: dict[LayerName, Counts] = {}
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        record = _json(path, line, number)
        try:
            assert isinstance(record, dict)
            name = (str(record["block"]), int(record.get("mtp_idx", 0)), int(record["layer"]))
            micro_batches = [_numbers(one) for one in record["tpe"]]
            rows = [sum(column) for column in zip(*micro_batches, strict=True)]
            known = layers.get(name, [0.0] * len(rows))
            layers[name] = [a + b for a, b in zip(known, rows, strict=True)]
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path}:{number}: {EXPECTED}") from error
    return layers


def _of_json(path: Path, text: str) -> list[Counts]:
    found = _json(path, text, 1)
    if isinstance(found, dict):
        found = found.get("tokens_per_expert")
    try:
        assert isinstance(found, list)
        if found and isinstance(found[0], list):
            return [_numbers(one) for one in found]
        return [_numbers(found)]
    except (AssertionError, TypeError, ValueError) as error:
        raise FileError(f"{path}: {EXPECTED}") from error


def _of_lines(path: Path, text: str) -> Iterator[Counts]:
    """A line for each layer; one number a line is one layer; a line of words on top is skipped."""
    lines = [
        re.split(r"[,;\s]+", line.strip(" ,;\t")) for line in text.splitlines() if line.strip()
    ]
    headed = bool(lines) and not any(cell[:1].isdigit() for cell in lines[0])
    try:
        rows = [_numbers(line) for line in lines[headed:]]
    except ValueError as error:
        raise FileError(f"{path}: {EXPECTED}") from error
    if headed and lines[0][0].lower() == "layer":
        rows = [row[1:] for row in rows]
    if all(len(row) == 1 for row in rows):
        rows = [[row[0] for row in rows]]
    yield from rows


def _numbers(values: Iterable[object]) -> Counts:
    """Numbers of a list; true and false are none."""
    found: Sequence[object] = list(values)
    if any(isinstance(one, bool) or not isinstance(one, int | float | str) for one in found):
        raise ValueError("not a number")
    return [float(str(one)) for one in found]


def _json(path: Path, text: str, line: int) -> object:
    try:
        return read_json(text)
    except ValueError as error:
        raise FileError(f"{path}:{line}: not JSON: {EXPECTED}") from error
