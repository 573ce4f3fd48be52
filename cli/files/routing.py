"""Tokens per expert, from a file or from what Megatron-LM writes.

Megatron-LM's `--save-tokens-per-expert-interval` writes a folder `tokens_per_expert` with a file
`rankN.jsonl` of every rank, one line for each layer and iteration: rows of the rank's own experts,
by micro batch. Source: Megatron-LM @d98e8a64 `megatron/training/activation_logging.py`, save_tpe:
a layer's number is that of its module in the stage, and no file has the stage, so files of a
pipeline come in a folder `stageN` of each. Virtual stages of a rank share numbers and records.
Plain files hold one line of counts for each layer, or of each step and layer (CSV), a table with a
line for each expert, or lists of counts (JSON). Counts of several iterations stay those of steps.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from trainplan.cli.files.disk import FileError, read_records
from trainplan.cli.files.readable import is_folder, names_in
from trainplan.cli.terminal import remark
from trainplan.costmodel.base import read_json
from trainplan.costmodel.job import RoutingSpec
from trainplan.costmodel.spec import first_complaint

RANK_FILE = re.compile(r"rank(\d{1,7})\.jsonl")
STAGE_FOLDER = re.compile(r"stage(\d{1,4})")
EXPECTED = (
    "expected counts of tokens per expert: a line of numbers for each layer (CSV; columns step, "
    "layer and expert have their names on top), a list of them (JSON), or the files of "
    "Megatron-LM's --save-tokens-per-expert-interval"
)
MOST_COUNTS = 1_500_000
"""Of all steps, which a plan keeps. Source: derived; a plan of more is larger than files that are
read (LARGEST_FILE_BYTES); 100 steps of DeepSeek-V3 have fewer."""
STEP_NAMES, LAYER_NAMES = ("step", "iter", "iteration"), ("layer",)
LayerName = tuple[str | int, ...]
Counts = list[float]
Steps = dict[int, dict[LayerName, Counts]]
"""Counts of the layers of each step."""


def load_routing(path: Path) -> RoutingSpec:
    """How often each expert was chosen, by step where the file has steps.

    Raises:
        FileError: The file or folder is missing or holds no counts.
    """
    steps = _of_folder(path) if is_folder(path) else _of_text(path, read_records(path))
    layers = _in_order(path, steps)
    size = sum(len(counts) for one in layers for counts in one)
    if len(layers) > 1 and size > MOST_COUNTS:
        most = max(1, MOST_COUNTS * len(layers) // size)
        raise FileError(
            f"{path}: {size:,} counts of {len(layers):,} steps, and a plan keeps at most "
            f"{MOST_COUNTS:,}: give {most:,} steps, as far from each other as these allow"
        )
    total = [[sum(x) for x in zip(*one, strict=True)] for one in zip(*layers, strict=True)]
    several = {"steps": layers} if len(layers) > 1 else {}
    try:
        return RoutingSpec.model_validate(
            {"kind": "measured", "tokens_per_expert": total, "source": str(path), **several}
        )
    except ValidationError as error:
        raise FileError(f"{path}: {first_complaint(error).reason}") from error


def _in_order(path: Path, steps: Steps) -> list[list[Counts]]:
    """Counts of each step and layer.

    Raises:
        FileError: Steps have other layers or experts than the first.
    """
    shapes = {
        number: sorted((name, len(counts)) for name, counts in layers.items())
        for number, layers in sorted(steps.items())
    }
    first = next(iter(shapes), 0)
    for number, shape in shapes.items():
        if shape != shapes[first]:
            raise FileError(
                f"{path}: step {number} has not the layers and experts of step {first}: every step "
                "needs the same"
            )
    return [[steps[number][name] for name, _ in shape] for number, shape in shapes.items()]


def _of_folder(path: Path) -> Steps:
    """Counts of each step and layer, those of its ranks one after the other."""
    named = [(RANK_FILE.fullmatch(name), path / name) for name in names_in(path)]
    files = sorted((int(match[1]), one) for match, one in named if match)
    stages = [(STAGE_FOLDER.fullmatch(name), path / name) for name in names_in(path)]
    staged = sorted((int(match[1]), one) for match, one in stages if match and is_folder(one))
    if staged and not files:
        return _of_stages([_of_folder(one) for _, one in staged])
    if not files:
        inner = path / "tokens_per_expert"
        if is_folder(inner):
            return _of_folder(inner)
        raise FileError(f"{path}: no file rankN.jsonl in it: {EXPECTED}")
    ranks = [_summed(file, read_records(file)) for _, file in files]
    if len({frozenset(name for layers in rank.values() for name in layers) for rank in ranks}) > 1:
        raise FileError(
            f"{path}: ranks have not the same layers, as stages of a pipeline, where Megatron-LM "
            "numbers layers from 0: put the files of each stage into a folder stage0, stage1, ..."
        )
    steps: Steps = {}
    own = _without_tensor_ranks(ranks)
    if len(own) < len(ranks):
        remark(
            f"{path}: every {len(ranks) // len(own)} ranks in a row have the same counts, so they "
            f"are taken for tensor ranks of the same experts: {len(own)} of {len(ranks)} are read"
        )
    for rank in own:
        for number, layers in rank.items():
            for name, counts in layers.items():
                steps.setdefault(number, {}).setdefault(name, []).extend(counts)
    return steps


def _of_stages(stages: list[Steps]) -> Steps:
    """Layers of stages one after the other; of the decoder first, then those that predict more."""
    steps: Steps = {}
    for stage, one in enumerate(stages):
        for number, layers in one.items():
            named = {(block, stage, *rest): counts for (block, *rest), counts in layers.items()}
            steps.setdefault(number, {}).update(named)
    return steps


def _without_tensor_ranks(ranks: list[Steps]) -> list[Steps]:
    """One of each group of ranks that hold parts of the same experts: their counts are the same.

    Where all ranks have the same counts none is left out: they may be equally full.
    Source: Megatron-LM @d98e8a64 `parallel_state.py`: tensor ranks of experts follow one another,
    and their dispatcher gathers the tokens of all.
    """
    alike = 1
    while len(ranks) % (2 * alike) == 0 and all(
        ranks[i] == ranks[i + alike] for i in range(0, len(ranks), 2 * alike)
    ):
        alike *= 2
    return ranks[::alike] if len(ranks) > alike else ranks


def _of_text(path: Path, text: str) -> Steps:
    if text.lstrip().startswith("{") and '"tpe"' in text:
        return _summed(path, text)
    if text.lstrip().startswith(("[", "{")):
        return _of_json(path, text)
    if not text.strip():
        raise FileError(f"{path}: the file is empty: {EXPECTED}")
    try:
        return _of_lines(text)
    except (IndexError, ValueError) as error:
        raise FileError(f"{path}: {EXPECTED}") from error


def _summed(path: Path, text: str) -> Steps:
    """Rows of a rank's own experts over all micro batches, by iteration and layer."""
    steps: Steps = {}
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        record = _json(path, line, number)
        try:
            assert isinstance(record, dict)
            name = (str(record["block"]), int(record.get("mtp_idx", 0)), int(record["layer"]))
            micro_batches = [_numbers(one) for one in record["tpe"]]
            rows = [sum(column) for column in zip(*micro_batches, strict=True)]
            layers = steps.setdefault(int(record["iter"]), {})
            known = layers.get(name, [0.0] * len(rows))
            layers[name] = [a + b for a, b in zip(known, rows, strict=True)]
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path}:{number}: {EXPECTED}") from error
    return steps


def _of_json(path: Path, text: str) -> Steps:
    """Lists of counts: of a layer, of layers, or of layers of steps."""
    found = _json(path, text, 1)
    if isinstance(found, dict):
        found = found.get("tokens_per_expert")
    try:
        depth, inner = 0, found
        while isinstance(inner, list):
            depth, inner = depth + 1, inner[0]
        assert 1 <= depth <= 3
        for _ in range(3 - depth):
            found = [found]
        assert isinstance(found, list)
        return {
            number: {(layer,): _numbers(counts) for layer, counts in enumerate(layers)}
            for number, layers in enumerate(found)
        }
    except (AssertionError, IndexError, TypeError, ValueError) as error:
        raise FileError(f"{path}: {EXPECTED}") from error


def _of_lines(text: str) -> Steps:
    """A line for each layer, after its step and number where words on top name such columns.

    One number a line is one layer. Under a column `expert` each line is one expert's count.

    Raises:
        ValueError: A line has no counts.
        IndexError: A line ends before its count.
    """
    lines = [
        re.split(r"[,;\s]+", line.strip(" ,;\t")) for line in text.splitlines() if line.strip()
    ]
    headed = bool(lines) and not any(cell[:1].isdigit() for cell in lines[0])
    head = [cell.lower() for cell in lines[0]] if headed else []
    rows = [_numbers(line) for line in lines[headed:]]
    step = next((head.index(name) for name in STEP_NAMES if name in head), None)
    layer = next((head.index(name) for name in LAYER_NAMES if name in head), None)
    expert = head.index("expert") if "expert" in head else None
    keys = [place for place in (step, layer, expert) if place is not None]
    if all(len(row) == 1 for row in rows):
        rows = [[row[0] for row in rows]]
    steps: Steps = {}
    for number, row in enumerate(rows):
        counts = [value for place, value in enumerate(row) if place not in keys]
        layers = steps.setdefault(0 if step is None else int(row[step]), {})
        unnamed = number if expert is None and step is None else 0
        name = (unnamed if layer is None else int(row[layer]),)
        if expert is None:
            if name in layers:
                raise ValueError("the same layer twice")
            layers[name] = counts
            continue
        known = layers.setdefault(name, [])
        if int(row[expert]) != len(known):
            raise ValueError("experts are not in order")
        known.append(counts[0])
    return steps


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
