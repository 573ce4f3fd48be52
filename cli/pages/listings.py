"""What `plan catalog` lists, as its document and its page."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import numpy as np
from rich.text import Text

from trainplan.cli.blocks import Part, headed, number, section, table
from trainplan.cli.pages.catalog import (
    Entry,
    cluster_entries,
    clusters_page,
    gpu_entry,
    gpu_page,
    gpus_page,
    machine_entries,
    model_entry,
    models_page,
    reading_entry,
    reading_page,
)
from trainplan.cli.words import DOT
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.catalog import (
    SourcedDrives,
    SourcedHost,
    gpu,
    gpu_names,
    host,
    hosts,
    plugged_gpus,
    plugged_hosts,
)
from trainplan.costmodel.copy_streams import METHODS, Method, Place
from trainplan.costmodel.families import Reading
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers import OPTIMIZERS, Matrix, Optimizer
from trainplan.costmodel.presets import plugged_models, preset, preset_names
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.semantics import CHANGES
from trainplan.costmodel.spec import Sourced

SHOWN = (4096, 16384)
"""Shape of the matrix whose state is shown as bytes a parameter."""
RANK = 256


def optimizers_page() -> Iterator[Part]:
    """All optimizers: state, work, and who has them."""
    rows, columns = SHOWN
    sizes = number("bytes/parameter", "{:.3g}".format)
    states = ((_usage(one), one.says, shown_bytes_per_param(one)) for one in OPTIMIZERS.values())
    yield table("", ("optimizer", "state of a matrix of m x n", sizes), states)
    yield (
        "Numbers are of 4 bytes, of 2 where there is no fp32 copy of the weights (galore, apollo); "
        f"bytes/parameter: of {rows:,} x {columns:,}, r = {RANK}, without weights and gradients. "
        "Of embedding, head and vectors muon, soap, shampoo, galore and apollo keep two moments."
    )
    yield Text("Work, exchange, sharding and runtimes", style="bold")
    for one in OPTIMIZERS.values():
        yield headed(one.name, *(Text(f"  {line}") for line in _lines(one)))


def optimizer_entry(name: str) -> Mapping[str, object]:
    """One optimizer as JSON."""
    one = OPTIMIZERS[name]
    return {
        "name": name,
        "settings": list(one.takes),
        "state": one.says,
        "shown_matrix": list(SHOWN),
        "shown_rank": RANK if "rank" in one.takes else None,
        "bytes_per_param": shown_bytes_per_param(one),
        "keeps_fp32_weights": not one.bare,
        "work": one.work or None,
        "collectives": one.collectives or None,
        "needs_whole_matrices": one.whole_matrices,
        "updates_by_layer": one.by_layer,
        "changes_training": CHANGES[one.changes].says if one.changes else None,
        "runtimes": _runtimes(one),
        "source": one.source,
    }


def shown_bytes_per_param(one: Optimizer) -> float:
    """Bytes of state a parameter of the matrix that is shown."""
    rows, columns = (np.asarray(float(side)) for side in SHOWN)
    request = OptimizerSpec(name=one.name, rank=RANK if "rank" in one.takes else None)
    width = BYTES_FP32 / 2 if one.bare else BYTES_FP32
    return float(one.state_bytes(Matrix(rows, columns), request, width) / (rows * columns))


def _usage(one: Optimizer) -> str:
    return one.name + "".join(f":{setting}=" for setting in one.needs)


def _runtimes(one: Optimizer) -> dict[str, str]:
    """Runtimes that have it, with their word for it."""
    words = {name: dict(traits.optimizers) for name, traits in RUNTIMES.items()}
    return {name: known[one.name] for name, known in words.items() if one.name in known}


def _lines(one: Optimizer) -> Iterator[str]:
    if one.work:
        yield f"work: {one.work}"
    if one.collectives:
        yield f"exchange: {one.collectives}"
    if one.whole_matrices:
        yield "needs whole matrices: ZeRO-1 gives each to one rank"
    if one.by_layer:
        yield "update=layer: one layer's gradients at once, on one GPU with one micro batch"
    if one.changes:
        yield f"changes the training: {CHANGES[one.changes].says}"
    yield f"runtimes: {', '.join(f'{name} ({word})' for name, word in _runtimes(one).items())}"
    yield f"source: {one.source}"


Listing: TypeAlias = tuple[Entry, Iterable[Part]]
"""A document and its page."""


def gpu_listing(name: str | None) -> Listing:
    """All GPUs, or one with every number of it."""
    if name:
        return gpu_entry(name), gpu_page(name)
    known = {name: gpu(name) for name in gpu_names()}
    entries = {"gpus": {name: gpu_entry(name) for name in known}}
    return entries, (*gpus_page(known), *_plugged(plugged_gpus()))


def model_listing(reading: Reading | None) -> Listing:
    """All presets, or what was read of one model."""
    if reading:
        return reading_entry(reading), reading_page(reading)
    presets = [preset(name) for name in preset_names()]
    entries = {"models": {model.name: model_entry(model) for model in presets}}
    return entries, (*models_page(presets), *_plugged(plugged_models()))


def listing(kind: Literal["hosts", "methods", "optimizers", "clusters"]) -> Listing:
    """All there is of a kind."""
    match kind:
        case "hosts":
            some = {name: host_entry(name) for name in hosts()}
            return {kind: some}, (*hosts_page(), *_plugged(plugged_hosts()))
        case "methods":
            return {kind: {name: method_entry(name) for name in METHODS}}, methods_page()
        case "optimizers":
            some = {name: optimizer_entry(name) for name in OPTIMIZERS}
            return {kind: some}, (*optimizers_page(), *_plugged(OPTIMIZERS.plugged()))
        case "clusters":
            return {kind: cluster_entries(), "machines": machine_entries()}, clusters_page()


def _plugged(whose: Mapping[str, str]) -> Iterator[Part]:
    """Names, and the plug-in each is from; nothing where there are none."""
    if whose:
        yield section("From plug-ins", *(f"{name}: {who}" for name, who in whose.items()))


HOST_WORDS = {
    "memory_gib": "memory, GiB",
    "memory_gb_per_s": "memory, GB/s",
    "adam_params_per_s": "Adam, parameters/s",
    "gpus_per_switch": "GPUs on one link",
    "launch_factor": "launch time, x86 server 1",
    "count": "drives",
    "tb": "each drive, TB",
    "read_gb_per_s": "each drive reads, GB/s",
    "write_gb_per_s": "each drive writes, GB/s",
    "tb_written": "each drive's life, TB written",
}
"""What the page calls a figure."""


def hosts_page() -> Iterator[Part]:
    """Every host with its figures and their sources."""
    for name in hosts():
        yield Text(name, style="bold")
        rows = (
            (HOST_WORDS[key], f"{one.value:,g}", one.source) for key, one in _figures(host(name))
        )
        yield table("", ("figure", number("value"), "source"), rows)
    yield (
        "In a cluster file `host: {like: NAME}`, with figures of your own next to it; in the short "
        "form 1x8:h100-sxm@dgx-h100. What is not listed is not known, and not checked."
    )


def host_entry(name: str) -> Entry:
    """One host as JSON."""
    return {"name": name, **host(name).model_dump(mode="json")}


def _figures(one: SourcedHost | SourcedDrives) -> Iterator[tuple[str, Sourced]]:
    for key in type(one).model_fields:
        value = getattr(one, key)
        if isinstance(value, SourcedDrives):
            yield from _figures(value)
        elif value is not None:
            yield key, value


PLACES = {Place.DEVICE: "GPU", Place.HOST: "host", Place.DRIVE: "drives"}


def methods_page() -> Iterator[Part]:
    """Every method: what it does, what it keeps where, who has it."""
    for one in METHODS.values():
        lines = (one.what, _kept(one), _where(one), one.source)
        yield headed(one.name, *(Text(f"  {line}") for line in lines if line))
    yield (
        "Bytes a parameter are those of the publication. Methods that no runtime has are priced "
        "with `--runtime NAME`, and not exported."
    )


def _kept(one: Method) -> str:
    found = {place: one.bytes_per_parameter(place) for place in PLACES}
    return DOT.join(
        f"{PLACES[place]} {size:g} B/parameter" for place, size in found.items() if size
    )


def _where(one: Method) -> str:
    if one.runtime:
        return f"in {one.runtime}"
    return f"priced as a method: --runtime {one.name}" if one.name in RUNTIMES else ""


def method_entry(name: str) -> Entry:
    """One method as JSON."""
    one = METHODS[name]
    return {
        "name": name,
        "what": one.what,
        "runtime": one.runtime,
        "priced_as": name if name in RUNTIMES else None,
        "keeps": [
            {
                "place": PLACES[kept.place],
                "term": kept.term,
                "bytes_per_parameter": kept.bytes_per_parameter,
            }
            for kept in one.keeps
        ],
        "source": one.source,
    }
