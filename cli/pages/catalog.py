"""The catalog as tables and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from trainplan.cli.blocks import Columns, Part, headed, number, section, table
from trainplan.cli.words import NEVER, parameters
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.catalog import fitted, gpu, gpu_names, hosts, stand_in
from trainplan.costmodel.families import Reading
from trainplan.costmodel.hardware import GpuSpec
from trainplan.costmodel.model import num_active_parameters, num_parameters
from trainplan.costmodel.presets import Machine, machines, preset_config, preset_names, repositories
from trainplan.costmodel.spec import Sourced
from trainplan.planner.documents import model_json

Entry = Mapping[str, object]
_GPU_HEADS = ("memory GiB", "memory GB/s", "bf16 TFLOP/s", "fp8 TFLOP/s", "link GB/s", "NIC GB/s")
SOURCE = "_source"
BITS_OF_BYTE = 8


def gpus_page(gpus: Mapping[str, GpuSpec]) -> Iterator[Part]:
    """All GPUs, one row each."""
    yield table(
        "",
        ("GPU", *map(number, (*_GPU_HEADS, "fit"))),
        (
            (
                name,
                _number(spec.memory_gib),
                _number(spec.memory_gb_per_s),
                _number(spec.peak_tflops.get("bf16")),
                _number(spec.peak_tflops.get("fp8")),
                _number(spec.link_gb_per_s),
                _number(spec.nic_gb_per_s),
                "own" if fitted(name).gemm else (NEVER if stand_in(name) is None else "other"),
            )
            for name, spec in gpus.items()
        ),
        spare=("fit", "fp8 TFLOP/s", "memory GB/s", "NIC GB/s"),
    )
    yield (
        "Dense peaks; bandwidths of one GPU in one direction. fit: constants fitted on "
        "measurements of this GPU (own), of a like one (other), or assumed (-).\n"
        "`plan catalog gpus NAME` shows every number with its source."
    )


def gpu_page(name: str) -> Iterator[Part]:
    """Every number of one GPU with its source."""
    spec = gpu(name)
    yield Text(f"{name}: {spec.vendor} {spec.architecture}, {spec.link}", style="bold")
    numbers = ((label, _number(item), item.source) for label, item in _sourced_numbers(spec))
    yield table("", ("number", number("value"), "source"), numbers)
    yield (
        f"Usual node: {spec.gpus_per_node} GPUs, scale-up domain of {spec.nvlink_domain}. "
        f"In a cluster: 8x{spec.gpus_per_node}:{name}"
    )
    yield _fit_part(name)


def gpu_entry(name: str) -> Entry:
    """One GPU as JSON."""
    return {
        "name": name,
        **gpu(name).model_dump(mode="json"),
        "fitted": fitted(name).model_dump(mode="json"),
        "stand_in": stand_in(name),
    }


def models_page(models: Sequence[ModelSpec]) -> Iterator[Part]:
    """All presets, one row each."""
    heads = map(number, ("parameters", "active", "experts", "context"))
    columns: Columns = ("model", *heads, "Hugging Face")
    yield table("", columns, map(_model_row, models), spare=("context", "experts"))
    yield (
        "--model takes these names and those of Hugging Face, in any case and with -Instruct, "
        "-Base or -FP8 at their end; a config.json or its folder works like a preset, and `plan "
        "catalog models path/to/config.json` shows what was read of it. --template prints a file "
        "to fill in."
    )


def reading_page(reading: Reading) -> Iterator[Part]:
    """A model with all its fields, and how they were read."""
    model = reading.model
    yield Text(f"{model.name}: {parameters(num_parameters(model))} parameters", style="bold")
    fields = [
        ("num_parameters", f"{num_parameters(model):,}"),
        ("num_active_parameters", f"{num_active_parameters(model):,}"),
        *_flat("", _without_layers(model)),
        *_layers(model),
    ]
    yield table("", ("field", "value"), fields)
    if reading.assumed:
        yield section("Not in the file, assumed")
        rows = ((name, _word(value)) for name, value in sorted(reading.assumed.items()))
        yield table("", ("field", "default"), rows)
    if reading.ignored:
        yield f"Read past, no part of this model: {', '.join(reading.ignored)}"
    yield from (f"Note: {note}" for note in reading.notes)
    called = repositories(model.name) if model.name in preset_names() else ()
    if called:
        yield f"On Hugging Face: {', '.join(called)}"
    source = _source(model)
    if source:
        yield f"Source: {source}"


def _without_layers(model: ModelSpec) -> dict[str, object]:
    """All fields, but for the list of layers."""
    values = model.model_dump(mode="json", exclude_none=True, exclude={"layers", "layer_kinds"})
    return {name: value for name, value in values.items() if value not in ([], "")}


def _layers(model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Each kind of layer: how many, and in what it differs from the model."""
    if model.layers is None:
        return
    for kind in model.layer_kinds:
        changes = ", ".join(f"{name} {_word(value)}" for name, value in kind.changes().items())
        yield f"layers: {kind.name}", f"{model.layers.count(kind.name)}: {changes}"


def _word(value: object) -> str:
    """A value as a file writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(model: ModelSpec) -> object:
    """Where the sizes of a preset are printed."""
    return preset_config(model.name).get(SOURCE) if model.name in preset_names() else None


def reading_entry(reading: Reading) -> Entry:
    """A model and how it was read, as JSON; Infinity and NaN, which JSON lacks, by their names."""
    return {
        **model_json(reading.model),
        "source": _source(reading.model),
        "read": json.loads(json.dumps(reading.read), parse_constant=str),
        "assumed": reading.assumed,
        "ignored": list(reading.ignored),
        "notes": list(reading.notes),
    }


def model_entry(model: ModelSpec) -> Entry:
    """One preset as JSON."""
    called = list(repositories(model.name))
    return {**model_json(model), "source": _source(model), "repositories": called}


def clusters_page() -> Iterator[Part]:
    """How to write a cluster."""
    heads = ("GPUs per node", "scale-up domain", "NIC GB/s per GPU")
    nodes = [list(entry.values()) for entry in cluster_entries()]
    rows = ((*map(str, one), NEVER if nic is None else f"{nic:g}") for *one, nic in nodes)
    yield table("", ("short form (64 GPUs)", *map(number, heads)), rows)
    yield Text("Machines with a name", style="bold")
    sizes = (number("nodes"), number("GPUs"), "GPU", number("network"), "by", number("host GiB"))
    named = (_machine_row(name, machine) for name, machine in machines().items())
    yield table("", ("machine", "also", *sizes), named)
    yield (
        "GPUs of a node and its network in Gb/s, by its transport; -: as above, or not known. "
        "--json has the source of every row, `plan catalog hosts` memory and drives."
    )
    yield section(
        "A cluster of your own",
        "NODESxGPUS:GPU              any count of nodes and GPUs, such as 32x8:h100-sxm",
        "COUNTxGPU                   GPUs in nodes of the usual size: 64xh100, 4xa100",
        "COUNTxMACHINE               2xp5.48xlarge, gb200-nvl72",
        "A+B                         groups of different nodes, as in 4x8:h100-sxm+4x8:h200-sxm",
        "plan catalog clusters --template > cluster.yaml    a file with NICs, tiers and prices",
        "plan catalog clusters --schema                     its JSON Schema, for editors",
    )


def _machine_row(name: str, machine: Machine) -> tuple[str, ...]:
    nic, host = machine.nic, hosts().get(machine.host or "")
    return (
        name,
        ", ".join(machine.aliases),
        f"{machine.nodes}",
        f"{machine.gpus_per_node}",
        machine.gpu,
        f"{nic.per_node * nic.gb_per_s * BITS_OF_BYTE:,.0f}" if nic else NEVER,
        (nic.transport if nic else None) or NEVER,
        f"{host.memory_gib.value:,.0f}" if host else NEVER,
    )


def machine_entries() -> Entry:
    """Machines with a name as JSON."""
    return {name: machine.model_dump(mode="json") for name, machine in machines().items()}


def cluster_entries() -> Sequence[Entry]:
    """The usual node of every GPU."""
    entries = []
    for name in gpu_names():
        spec = gpu(name)
        nodes = max(1, 64 // spec.gpus_per_node)
        entries.append(
            {
                "short_form": f"{nodes}x{spec.gpus_per_node}:{name}",
                "gpus_per_node": spec.gpus_per_node,
                "nvlink_domain": spec.nvlink_domain,
                "nic_gb_per_s": spec.nic_gb_per_s.value if spec.nic_gb_per_s else None,
            }
        )
    return entries


def _sourced_numbers(spec: GpuSpec) -> Iterator[tuple[str, Sourced]]:
    for label, one in (
        ("memory, GiB", spec.memory_gib),
        ("memory, GB/s", spec.memory_gb_per_s),
        *((f"{key} peak, TFLOP/s", peak) for key, peak in spec.peak_tflops.items()),
        (f"{spec.link}, GB/s", spec.link_gb_per_s),
        ("host, GB/s", spec.host_gb_per_s),
        ("NIC, GB/s", spec.nic_gb_per_s),
        ("TDP, W", spec.tdp_w),
        ("days between failures of a node", spec.mtbf_node_days),
    ):
        if one is not None:
            yield label, one


def _fit_part(name: str) -> Part:
    own, other, announced = fitted(name), stand_in(name), gpu(name).announced
    lines = [f"announced: {announced}"] if announced else []
    lines += [f"matrix products, {key}: {fit.source}" for key, fit in own.gemm.items()]
    lines += [f"{key}: {fit.source}" for key, fit in own.collectives.items()]
    lines += [f"attention: {own.attention.source}"] if own.attention else []
    lines += [f"sustained, {key}: {item.source}" for key, item in own.sustained.items()]
    if other:
        lines.append(f"where it has none, {other} is used")
    if not lines:
        lines.append("nothing: assumed constants are used")
    return headed("Fitted on measurements", *(Text(f"- {x}") for x in lines))


def _model_row(model: ModelSpec) -> tuple[str, ...]:
    active = num_active_parameters(model)
    return (
        model.name,
        parameters(num_parameters(model)),
        parameters(active) if model.moe else "",
        f"{model.moe.num_experts_per_tok}/{model.moe.num_experts}" if model.moe else "",
        f"{model.max_position_embeddings:,}",
        next(iter(repositories(model.name)), NEVER),
    )


def _flat(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", _word(value)


def _number(item: Sourced | None) -> str:
    if item is None:
        return NEVER
    return f"{item.value:,.0f}" if item.value == int(item.value) else f"{item.value:,g}"
