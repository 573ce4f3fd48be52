"""The text of `--layout`: `tp=8,pp=4,vpp=2,micro_batch_size=1,recompute_modules=core_attn+mlp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pydantic import ValidationError

from trainplan.cli.render.parts.text import SHORT_MODULES
from trainplan.costmodel.base.errors import SpecError, unknown_name
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.spec.cluster import ClusterSpec
from trainplan.costmodel.spec.layout import Layout

EXAMPLE = "tp=8,pp=4,vpp=2,micro_batch_size=1"
SHORT_NAMES = MappingProxyType(
    {"mbs": "micro_batch_size", "zero": "zero_stage", "sp": "sequence_parallel"}
)
"""Names the tables print, taken as well."""
MODULES = MappingProxyType(
    {name: module for module, short in SHORT_MODULES.items() for name in (module, short)}
)
"""Likewise of recomputed modules."""
LONGEST_NUMBER = 9
"""Digits; no field of a layout comes near it."""
MOST_STAGES = 1 << 16
BOOLEANS = MappingProxyType({"true": True, "1": True, "false": False, "0": False})


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
    for part in text.split(","):
        name, equals, value = spelled_out(part).partition("=")
        if not equals:
            raise SpecError(f"layout part {part!r}: expected FIELD=VALUE, as in {EXAMPLE}")
        if name not in READERS:
            raise unknown_name("layout field", name, READERS, f"known: {', '.join(READERS)}")
        if name in values:
            raise SpecError(f"layout {text!r}: {name} is given twice")
        values[name] = READERS[name](name, value)
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


def _whole(name: str, value: str) -> int:
    digits = value.lstrip("0")
    if not (value.isascii() and value.isdigit()):
        raise SpecError(f"layout field {name}={value[:40]}: expected a whole number")
    if len(digits) > LONGEST_NUMBER:
        raise SpecError(
            f"layout field {name}={value[:40]}: expected a whole number of at most "
            f"{LONGEST_NUMBER} digits"
        )
    return int(digits or "0")


def _degree(name: str, value: str) -> int:
    number = _whole(name, value)
    if number == 0:
        raise SpecError(f"layout field {name}=0: must be at least 1")
    return number


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in BOOLEANS:
        raise SpecError(f"layout field {name}={value}: expected true or false")
    return BOOLEANS[value.lower()]


def _word(name: str, value: str) -> str | None:
    return None if value == "none" and name == "recompute_method" else value


def _words(name: str, value: str) -> list[str]:
    return [word for word in value.split("+") if word]


def _offload(name: str, value: str) -> dict[str, object]:
    try:
        return {"optimizer": float(value)}
    except ValueError as error:
        raise SpecError(
            f"layout field {name}={value}: expected the share of the optimizer kept in host "
            "memory, 0 to 1"
        ) from error


def _stages(name: str, value: str) -> list[dict[str, int]] | None:
    """`even`, or layers of every virtual stage: `13*8+12` is eight stages of 13 and one of 12.

    `13/4` is a stage of 13 layers whose first 4 are recomputed in full; `13@1` lives in node group
    1, counted from 0, `13/4@1` is both.
    """
    if value == "even":
        return None
    stages: list[dict[str, int]] = []
    for part in value.split("+"):
        stage, star, times = part.partition("*")
        stage, at, group = stage.partition("@")
        layers, slash, again = stage.partition("/")
        entry = {"layers": _whole(name, layers)}
        if slash:
            entry["recompute_num_layers"] = _whole(name, again)
        if at:
            entry["group"] = _whole(name, group)
        repeats = _degree(name, times) if star else 1
        if repeats + len(stages) > MOST_STAGES:
            raise SpecError(f"layout field {name}={value[:40]}: at most {MOST_STAGES} stages")
        stages += [entry] * repeats
    return stages


READERS: Mapping[str, Callable[[str, str], object]] = MappingProxyType(
    {
        "tp": _degree,
        "pp": _degree,
        "vpp": _degree,
        "cp": _degree,
        "dp": _degree,
        "ep": _degree,
        "etp": _degree,
        "dp_replicate": _degree,
        "zero_stage": _whole,
        "sequence_parallel": _boolean,
        "micro_batch_size": _degree,
        "schedule": _word,
        "recompute": _word,
        "recompute_modules": _words,
        "recompute_method": _word,
        "recompute_num_layers": _degree,
        "offload": _offload,
        "offload_modules": _words,
        "stages": _stages,
    }
)
"""How each field of `Layout` is read; a test asserts that none is missing."""
