"""The text of `--layout`: `tp=8,pp=4,vpp=2,micro_batch_size=1,recompute_modules=core_attn+mlp`.

Or a layout as pages print it (`printed_layout`), or `@plan.json:3`, the third of a plan's table.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from trainplan.cli.files import errors_of, read_json
from trainplan.cli.terminal import remark
from trainplan.cli.values.printed_layout import (
    MODULES,
    SHORT_NAMES,
    is_row,
    printed_fields,
    value_fields,
)
from trainplan.costmodel.axes import AXIS_OF_OPTION
from trainplan.costmodel.base import SpecError, shortened, unknown_name
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import place
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.documents import with_candidate, written
from trainplan.planner.space import Choice, parse_choice

EXAMPLE = "tp=8,pp=4,vpp=2,micro_batch_size=1"
NAMES = tuple(AXIS_OF_OPTION)
WAYS = (
    f"write FIELD=VALUE, as in {EXAMPLE}, paste a layout as it was printed, or name one of a plan, "
    "@plan.json:3"
)
EVEN = "taken as even; @plan.json:N has those of row N"


def parse_layout(text: str, cluster: ClusterSpec) -> Layout:
    """Read a layout; what is left out follows from the rest.

    `dp` fills the cluster, `schedule` is interleaved if `vpp > 1`, naming `recompute_modules`
    means `recompute=selective` (alone it means `core_attn`), and `recompute=full` recomputes every
    single layer. Everything else defaults to 1, or off, with `zero_stage=1`.

    Raises:
        SpecError: Unknown field or value; the message lists those known.
        FileError: No plan is where the text points.
    """
    if text.strip().startswith("@"):
        return _of_plan(text.strip()[1:])
    values = _parsed(text)
    _derive_recompute(values)
    if "schedule" not in values:
        values["schedule"] = "interleaved" if values.get("vpp", 1) != 1 else "1f1b"
    if "dp" not in values:
        values["dp"] = _data_parallel(text, values, cluster)
    try:
        return Layout.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"layout {shortened(text)!r}: {first_complaint(error).text}") from error


def _of_plan(text: str) -> Layout:
    """`plan.json:3`: a layout of a plan's table; `plan.json`: the best."""
    path, colon, number = text.rpartition(":")
    if not (colon and number.isascii() and number.isdigit()):
        path, number = text, ""
    document, _ = read_json(Path(path))
    with errors_of(path):
        return written(with_candidate(document, int(number[:9])) if number else document).layout


def spelled_out(text: str) -> str:
    """`mbs=1` as `micro_batch_size=1`, `recompute=norm` as `recompute_modules=layernorm`."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    modules = [MODULES.get(word) for word in value.split("+")]
    if name in ("recompute", "recompute_modules") and None not in modules:
        name, value = "recompute_modules", "+".join(map(str, modules))
    return f"{SHORT_NAMES.get(name, name)}{equals}{value}"


def parse_choices(
    fix: Iterable[str], exclude: Iterable[str]
) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
    """Read `--fix` and `--exclude`; to fix uneven stages is to exclude even ones.

    Raises:
        SpecError: Unknown field or value.
    """
    given = [
        (spelled_out(text), excluded)
        for excluded, texts in ((False, fix), (True, exclude))
        for text in texts
    ]
    turned = [
        ("stages=even", not excluded) if text.lower() == "stages=uneven" else (text, excluded)
        for text, excluded in given
    ]
    choices = [parse_choice(text, excluded=excluded) for text, excluded in turned]
    return (
        tuple(choice for choice in choices if not choice.excluded),
        tuple(choice for choice in choices if choice.excluded),
    )


def _parsed(text: str) -> dict[str, object]:
    values: dict[str, object] = {}
    stated: set[str] = set()
    for name, value in _fields(text):
        if name not in AXIS_OF_OPTION and name in RuntimeOptions.model_fields:
            raise SpecError(
                f"{name} is a setting of the runtime, not a field of a layout: give `--option "
                f"{name}={shortened(value)}` to `plan search` or `plan estimate`; `plan compare` "
                "has the difference of two plans"
            )
        if name not in AXIS_OF_OPTION:
            raise unknown_name("layout field", name, NAMES, f"known: {', '.join(NAMES)}")
        if name in stated:
            raise SpecError(f"layout {shortened(text)!r}: {name} is given twice")
        stated.add(name)
        axis = AXIS_OF_OPTION[name]
        place(values, axis.name, axis.codec.read(name, value))
    return values


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Names and values, of text with `=` or as it was printed."""
    printed = None if "=" in text else printed_fields(text)
    if printed:
        if is_row(text) and dict(printed).get("pp") != "1":
            remark(f"a row of the table does not hold its stages: {EVEN}")
        yield from printed
        return
    for part in re.split(r",(?!\s*\w+:\d)", text):  # not within shard=weights:8,optimizer:64
        name, equals, value = spelled_out(part).partition("=")
        if equals:
            yield from value_fields(name, value)
            continue
        lines = printed_fields(part)
        if not lines:
            raise SpecError(f"layout part {shortened(part)!r}: {WAYS}")
        yield from lines


def _derive_recompute(values: dict[str, object]) -> None:
    if "recompute_modules" in values:
        values.setdefault("recompute", "selective")
    if values.get("recompute") == "selective":
        values.setdefault("recompute_modules", ["core_attn"])
    if values.get("recompute") == "full":
        values.setdefault("recompute_method", "uniform")
        values.setdefault("recompute_num_layers", 1)


def _data_parallel(text: str, values: Mapping[str, object], cluster: ClusterSpec) -> int:
    group = 1
    for name in ("tp", "cp", "pp"):
        degree = values.get(name, 1)
        assert isinstance(degree, int)
        group *= degree
    if cluster.num_gpus % group:
        raise SpecError(
            f"layout {shortened(text)!r}: tp * cp * pp = {group} does not divide the "
            f"{cluster.num_gpus} GPUs of the cluster: change one of them"
        )
    return cluster.num_gpus // group
