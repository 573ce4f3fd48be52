"""Layouts as pages print them, read back: a headline, a cell, a row of the table."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import product
from types import MappingProxyType

from trainplan.cli.words import SHORT_MODULES, SHORT_OFFLOADED
from trainplan.costmodel.axes import AXES, AXIS_OF_OPTION, AXIS_OF_SHORT
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.layout import OFFLOAD_MODULES, SCHEDULE_NAMES, Count

Fields = list[tuple[str, str]]
"""Names and values as `--layout` takes them."""
Taken = tuple[Fields, int]
"""What words mean, and how many of them."""

SHORT_NAMES = MappingProxyType({axis.short: axis.option for axis in AXES if axis.short})
"""Names the tables print, taken as well."""
MODULES = MappingProxyType(
    {name: module for module, short in SHORT_MODULES.items() for name in (module, short)}
)
"""Likewise of recomputed modules."""
OFFLOADED = MappingProxyType(
    {
        **{name: name for name in OFFLOAD_MODULES},
        **{short: name for name, short in SHORT_OFFLOADED.items()},
    }
)
"""Likewise of modules on the host."""
SEPARATORS = re.compile(r"[·|,\n]")
PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%(?: of [a-z]+)?")
WHOLE = MappingProxyType(
    {
        **{name: ("schedule", str(name)) for name in SCHEDULE_NAMES},
        **dict.fromkeys(("SP", "sp"), ("sequence_parallel", "true")),
    }
)
"""Words that are a phrase."""
FULL = re.compile(r"full (uniform|block)/(\d+)")
ZERO = re.compile(r"zero-(\d)(?: over (\d+) of (\d+))?", re.IGNORECASE)
LABEL = re.compile(r"(asked|given|plan|first|second|baseline|layout): +", re.IGNORECASE)
MARKS = ("<-", "knee", "*", "~")
"""Next to a layout in tables."""
LONGEST = 8
"""Words of a value, at most."""
MEANS_LATER = "step"
"""Head of the first column that is no part of a layout."""
DENSE = ("#", "tp", "pp", "vpp", "cp", "dp")
ROW_ALONE = (
    "a row of the table alone does not name its columns: paste its head too, the first "
    "line of the plan, or @plan.json:N for row N of that file"
)


def printed_fields(text: str) -> Fields | None:
    """What a headline, cells or a row mean; None where the text is not of that kind.

    Raises:
        SpecError: A row that could be of several tables.
    """
    lines = [line for line in LABEL.sub("", text.strip(), count=1).splitlines() if line.strip()]
    if not lines:
        return None
    head, *rows = (line.split() for line in lines)
    if head[0] == "#" and rows:
        return _row(_heads(head), rows[0])
    if head[0].isdigit():
        return _row_alone(head)
    stated = [line for line in lines if " a step" not in line]
    return _phrases("\n".join(stated))


def is_row(text: str) -> bool:
    """Is it a row of a table, with its head or without?"""
    return text.strip()[:1] == "#" or text.split(maxsplit=1)[0].isdigit()


def value_fields(name: str, value: str) -> Fields:
    """`recompute=full block/29`, `offload=25 %`: one field as it is in a cell, or as typed."""
    if name in ("recompute", "recompute_modules"):
        if found := _recompute(value):
            return found
    elif name == "offload.optimizer" and PERCENT.fullmatch(value):
        return [(name, _fraction(value))]
    return [(name, value)]


def _phrases(text: str) -> Fields | None:
    """Parts of a line between dots, each of one phrase or more."""
    fields: Fields = []
    for part in SEPARATORS.split(text):
        words = [word for word in part.split() if word not in MARKS]
        while words:
            found, count = _phrase(words)
            if not count:
                return None
            fields += found
            words = words[count:]
    return fields


def _phrase(words: Sequence[str]) -> Taken:
    """The longest phrase that the words begin with; of no words where they begin with none."""
    for count in range(min(LONGEST, len(words)), 0, -1):
        if found := _written(" ".join(words[:count])):
            return found, count
    return [], 0


def _written(phrase: str) -> Fields | None:
    """`tp 4`, `SP`, `ZeRO-1 over 4 of 8`, `recompute full block/29`, `zb-v`, ..."""
    if phrase in WHOLE:
        return [WHOLE[phrase]]
    if match := ZERO.fullmatch(phrase):
        return _sharded(match)
    name, _, value = phrase.partition(" ")
    if name == "recompute" or FULL.fullmatch(phrase):
        return _recompute(phrase.removeprefix("recompute "))
    if name == "offload" and value:
        return _cell_off_gpu(value) or _share_of_optimizer(value)
    axis = AXIS_OF_OPTION.get(name) or AXIS_OF_SHORT.get(name)
    return [(axis.option, value)] if axis and value and " " not in value else None


def _sharded(match: re.Match[str]) -> Fields:
    zero = [("zero_stage", match[1])]
    if match[2] is None or int(match[2]) == 0 or int(match[3]) % int(match[2]):
        return zero
    return [*zero, ("dp_replicate", str(int(match[3]) // int(match[2])))]


def _recompute(value: str) -> Fields | None:
    if value == "none":
        return [("recompute", "none")]
    if match := FULL.fullmatch(value):
        names = ("recompute", "recompute_method", "recompute_num_layers")
        return list(zip(names, ("full", *match.groups()), strict=True))
    modules = [MODULES.get(word.strip()) for word in value.split("+")]
    if None in modules:
        return None
    return [("recompute_modules", "+".join(map(str, modules)))]


def _share_of_optimizer(value: str) -> Fields | None:
    return [("offload.optimizer", _fraction(value))] if PERCENT.fullmatch(value) else None


def _fraction(percent: str) -> str:
    """`25 %` as `0.25`, exactly."""
    return str(Decimal(percent.partition("%")[0].strip()) / 100)


def _cell_off_gpu(value: str) -> Fields | None:
    """A cell of the column `off GPU`: `qkv+core+optimizer nvme+33 % of checkpoints`."""
    if value == "-":
        return []
    fields: Fields = []
    modules = []
    for word in (word.strip() for word in value.split("+")):
        share = re.fullmatch(r"(.+ % of )?checkpoints", word)
        if word in OFFLOADED:
            modules.append(OFFLOADED[word])
        elif word == "optimizer nvme":
            fields.append(("offload.tier", "nvme"))
        elif word in ("weights", "weights nvme"):
            fields.append(("offload.parameters", "nvme" if "nvme" in word else "cpu"))
        elif share:
            fields.append(("offload.checkpoints", _fraction(word) if share[1] else "1"))
        else:
            return None
    return [*fields, ("offload_modules", "+".join(modules))] if modules else fields


def _heads(words: Sequence[str]) -> list[str]:
    """Heads of the columns of a layout: those before its step."""
    before = " ".join(words).replace("off GPU", "off_GPU").split()
    return before[: before.index(MEANS_LATER)] if MEANS_LATER in before else before


def _row(heads: Sequence[str], words: Sequence[str]) -> Fields:
    fields = _cells(heads, words)
    if fields is None:
        raise SpecError(f"no row of a table with the columns {' '.join(heads)}: paste it as it is")
    return fields


def _row_alone(words: Sequence[str]) -> Fields:
    """A row whose cells leave but one choice of columns."""
    found: list[Fields] = []
    for experts, schedule, sp, share, away in product((False, True), repeat=5):
        heads = (
            *(*DENSE, *(("ep", "etp") * experts), *(("schedule",) * schedule), "mbs"),
            *(*(("sp",) * sp), "zero", *(("offload",) * share), *(("off_GPU",) * away)),
            "recompute",
        )
        fields = _cells(heads, words)
        if fields is not None and fields not in found:
            found.append(fields)
    if len(found) != 1:
        raise SpecError(ROW_ALONE)
    return found[0]


def _cells(heads: Sequence[str], words: Sequence[str]) -> Fields | None:
    """What the first cells of a row mean; None where they are not of these columns.

    A table without the column `sp` has only layouts with it where they have `tp`.
    """
    fields: Fields = []
    for head in heads:
        read = CELLS.get(head, _plain_cell)
        for count in range(min(LONGEST, len(words)), 0, -1):
            written = read(head, " ".join(words[:count]))
            if written is not None:
                fields += written
                words = words[count:]
                break
        else:
            return None
    if words and not re.fullmatch(r"[\d.,]+", words[0]):
        return None
    if "sp" not in heads and dict(fields).get("tp", "1") != "1":
        fields.append(("sequence_parallel", "true"))
    return fields


def _plain_cell(head: str, cell: str) -> Fields | None:
    axis = AXIS_OF_OPTION.get(head) or AXIS_OF_SHORT.get(head)
    if axis is None or " " in cell or isinstance(axis.codec, Count) != cell.isdigit():
        return None
    return [(axis.option, cell)]


def _yes_no(head: str, cell: str) -> Fields | None:
    values = {"yes": "true", "no": "false"}
    return [("sequence_parallel", values[cell])] if cell in values else None


CELLS: dict[str, Callable[[str, str], Fields | None]] = {
    "#": lambda head, cell: [] if cell.isdigit() else None,
    "sp": _yes_no,
    "schedule": lambda head, cell: [(head, cell)] if cell in SCHEDULE_NAMES else None,
    "offload": lambda head, cell: _share_of_optimizer(cell),
    "off_GPU": lambda head, cell: _cell_off_gpu(cell),
    "recompute": lambda head, cell: _recompute(cell),
}
