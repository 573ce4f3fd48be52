"""Pages on what the catalog holds: GPUs, fitted constants, runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from page_parts import Lines, table

from trainplan.cli.documents.registry import documented
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.constants import Constants
from trainplan.costmodel.hardware.gpu import GpuSpec
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.options import UNSEARCHED
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.spec.base import Sourced
from trainplan.planner.runtimes import EXPORTERS

NOT_SHOWN = ("name", "version", "rules", "footprint", "autograd", "settings", "stated")
"""Traits that have pages or modules of their own; code is not shown either."""


def gpus_page() -> Lines:
    """The catalog with its main numbers, then every source."""
    yield from ("# GPUs", "")
    yield "Names for `--cluster`. Datasheet numbers; GB/s are of one GPU in one direction, peaks"
    yield "are dense TFLOP/s, an empty cell is not known. *Domain*: reach of the scale-up link."
    yield "*Constants* says whose measurements the efficiencies come from:"
    yield "[where the constants come from](../explanation/constants.md)."
    yield ""
    head = ("name", "GiB", "memory", "bf16/fp16", "fp8", "link", "NIC", "domain", "constants")
    yield from table(head, (_gpu_row(name, catalog.gpu(name)) for name in catalog.gpu_names()))
    yield from ("## Sources", "")
    for name in catalog.gpu_names():
        yield from (f"### {name}", "", *_gpu_sources(catalog.gpu(name)))


def _gpu_row(name: str, gpu: GpuSpec) -> Sequence[str]:
    peaks = gpu.peak_tflops
    half = peaks.get("bf16") or peaks.get("fp16")
    link = f"{gpu.link} {_number(gpu.link_gb_per_s)}"
    numbers = (gpu.memory_gib, gpu.memory_gb_per_s, half, peaks.get("fp8"))
    tail = (link, _number(gpu.nic_gb_per_s), str(gpu.nvlink_domain), _constants(name))
    return (f"`{name}`", *map(_number, numbers), *tail)


def _number(value: Sourced | None) -> str:
    return f"{value.value:g}" if value else ""


def _constants(name: str) -> str:
    if catalog.fitted(name).gemm:
        return "fitted"
    other = catalog.stand_in(name)
    return f"of {other}" if other else "assumed"


def _gpu_sources(gpu: GpuSpec) -> Lines:
    numbers = {f: getattr(gpu, f) for f in GpuSpec.model_fields}
    numbers |= {f"peak_tflops.{key}": peak for key, peak in gpu.peak_tflops.items()}
    rows = [
        (f"`{f}`", f"{v.value:g}", v.source) for f, v in numbers.items() if isinstance(v, Sourced)
    ]
    yield from table(("number", "value", "source"), rows)


def constants_page() -> Lines:
    """Every fitted constant, its prior and its source; then the speeds of every GPU."""
    yield from ("# Fitted constants", "")
    yield "Constants of the formulas. *Prior* is what was known before any run, *spread* how far"
    yield "that may be off (standard deviation of its logarithm), *value* what prior and published"
    yield "runs together give: [how they are fitted](../explanation/constants.md)."
    yield ""
    meaning = dict(documented(Constants))
    head = ("constant", "meaning", "prior", "spread", "value", "source of the prior")
    yield from table(
        head,
        (
            (
                f"`{name}`",
                meaning[name],
                f"{entry.prior:.4g}",
                f"{entry.spread:g}",
                f"{entry.value:.4g}",
                entry.source,
            )
            for name, entry in catalog.fitted_constants().items()
        ),
    )
    yield from ("## Sustained speed", "")
    yield "Speed of matrix products in a training loop over their burst speed, and largest share of"
    yield "peak of fused attention. Low precisions go with `gemm.fp8_training`."
    yield ""
    yield from table(("GPU", "number", "value", "source"), _speed_rows())


def _speed_rows() -> Iterator[Sequence[str]]:
    for name in catalog.gpu_names():
        fit = catalog.fitted(name)
        for precision, number in sorted(fit.sustained.items()):
            yield f"`{name}`", precision, f"{number.value:.3f}", number.source
        if fit.attention:
            value = f"{fit.attention.max_efficiency:.3f}, half at {fit.attention.half_length:g}"
            yield f"`{name}`", "attention", value, fit.attention.source


def runtimes_page() -> Lines:
    """What each runtime does by default."""
    yield from ("# Runtimes", "")
    yield "Names for `--runtime`, and what each does unless a run says otherwise"
    yield f"(`--option`). `plan search` knows all of them, `plan export` {', '.join(EXPORTERS)}."
    yield ""
    for name, traits in RUNTIMES.items():
        yield from (f"## {name}", "", f"Checked against {traits.version}.", "")
        yield from table(("trait", "value", "meaning"), _trait_rows(traits))
        if traits.settings:
            yield from ("", "What `--search-options` tries, unless `--option` states it:", "")
            yield from table(("setting", "tried with", "its flag"), _setting_rows(traits))
        if traits.stated:
            yield from ("", "What `--option` may state and no search tries:", "")
            yield from table(
                ("option", "why"), ((f"`{one.text}`", one.why) for one in traits.stated)
            )
    yield from ("## Options that no search tries", "")
    yield "They are priced, and no price is a reason to choose them. Any other value that a runtime"
    yield from ("does not run with is refused.", "")
    yield from table(("option", "why"), ((f"`{name}`", why) for name, why in UNSEARCHED.items()))


def _setting_rows(traits: RuntimeTraits) -> Iterator[Sequence[str]]:
    for one in traits.settings:
        yield f"`{one.text}`", "safe, all" if one.level == "safe" else one.level, one.source


def _trait_rows(traits: RuntimeTraits) -> Iterator[Sequence[str]]:
    for group in (one.name for one in fields(RuntimeTraits) if one.name not in NOT_SHOWN):
        of_group = getattr(traits, group)
        if callable(of_group):
            continue
        if not is_dataclass(of_group):
            yield f"`{group}`", _value(of_group), dict(documented(RuntimeTraits))[group]
            continue
        meaning = dict(documented(type(of_group)))
        for one in (f.name for f in fields(of_group)):
            value = getattr(of_group, one)
            if not callable(value):
                yield f"`{group}.{one}`", _value(value), meaning[one]


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{x[0]} ({x[1]})" if isinstance(x, tuple) else str(x) for x in value)
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value))) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
