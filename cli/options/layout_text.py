"""The text of `--layout`: `tp=8,pp=4,vpp=2,micro_batch_size=1,recompute_modules=core_attn+mlp`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import ValidationError

from trainplan.cli.render.parts.text import SHORT_MODULES
from trainplan.costmodel.axes import AXES, AXIS_OF_OPTION
from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.layouts.table import place
from trainplan.costmodel.spec import ClusterSpec, Layout

EXAMPLE = "tp=8,pp=4,vpp=2,micro_batch_size=1"
NAMES = tuple(AXIS_OF_OPTION)
SHORT_NAMES = MappingProxyType({axis.short: axis.option for axis in AXES if axis.short})
"""Names the tables print, taken as well."""
MODULES = MappingProxyType(
    {name: module for module, short in SHORT_MODULES.items() for name in (module, short)}
)
"""Likewise of recomputed modules."""


def parse_layout(text: str, cluster: ClusterSpec) -> Layout:
    """Read a layout; what is left out follows from the rest.

    `dp` fills the cluster, `schedule` is interleaved if `vpp > 1`, naming `recompute_modules`
    means `recompute=selective` (alone it means `core_attn`), and `recompute=full` recomputes every
    single layer. Everything else defaults to 1, or off, with `zero_stage=1`.

    Raises:
        SpecError: Unknown field or value; the message says which are known.
    """
    values = _parsed(text)
    _derive_recompute(values)
    if "schedule" not in values:
        values["schedule"] = "interleaved" if values.get("vpp", 1) != 1 else "1f1b"
    if "dp" not in values:
        values["dp"] = _data_parallel(text, values, cluster)
    try:
        return Layout.model_validate(values)
    except ValidationError as error:
        raise SpecError(f"layout {text!r}: {first_complaint(error).text}") from error


def spelled_out(text: str) -> str:
    """`mbs=1` as `micro_batch_size=1`, `recompute=norm` as `recompute_modules=layernorm`."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    modules = [MODULES.get(word) for word in value.split("+")]
    if name in ("recompute", "recompute_modules") and None not in modules:
        name, value = "recompute_modules", "+".join(map(str, modules))
    return f"{SHORT_NAMES.get(name, name)}{equals}{value}"


def _parsed(text: str) -> dict[str, object]:
    values: dict[str, object] = {}
    told: set[str] = set()
    for part in text.split(","):
        name, equals, value = spelled_out(part).partition("=")
        if not equals:
            raise SpecError(f"layout part {part!r}: expected FIELD=VALUE, as in {EXAMPLE}")
        if name not in AXIS_OF_OPTION:
            raise unknown_name("layout field", name, NAMES, f"known: {', '.join(NAMES)}")
        if name in told:
            raise SpecError(f"layout {text!r}: {name} is given twice")
        told.add(name)
        axis = AXIS_OF_OPTION[name]
        place(values, axis.name, axis.codec.read(name, value))
    return values


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
            f"layout {text!r}: tp * cp * pp = {group} does not divide the {cluster.num_gpus} GPUs "
            "of the cluster: change one of them"
        )
    return cluster.num_gpus // group
