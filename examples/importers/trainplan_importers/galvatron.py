"""Files of Galvatron, any of them.

`computation_profiling_<precision>_<model>*.json`: `layertype_<i>_bsz<b>_seq<s>`, milliseconds of
the forward of one layer for one sample. `sp_time_<n>nodes_<g>gpus_per_node.json`:
`allreduce_size_<ranks>_<size>MB_time` and `all2all_size_...`, milliseconds of MiB.
`allreduce_bandwidth_...`: `allreduce_size_<ranks>_consec_<0|1>`, bus bandwidth in MiB/ms, of ranks
in a row (1) or as far apart as can be (0); `p2p_bandwidth_...`: `pp_size_<stages>`, MiB/ms of one
message. `overlap_coefficient.json`: the larger slow-down of the two that overlap.

Source: PKU-DAIR/Hetu-Galvatron galvatron/core/profiler (layers) and galvatron/profile_hardware
(units, message of 32 x 512 x 1024 numbers of 2 bytes, all-reduce of 4096 x 4096 fp32 numbers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from trainplan.costmodel.base import Entry, SpecError, json_entry
from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import (
    CollectivePoint,
    LayerPoint,
    Operation,
    OverlapPoint,
    Point,
    Profile,
)
from trainplan.profiler.importers import ImportRequest, base_name, stated
from trainplan_importers.reading import (
    MEBIBYTE,
    MILLISECOND,
    need_model,
    need_precision,
    unknown_file,
)

COMPUTATION = re.compile(r"computation_profiling_(?P<precision>[a-z0-9]+)_.*\.json")
NETWORK = re.compile(
    r"(?P<kind>allreduce_bandwidth|p2p_bandwidth|sp_time)"
    r"_(?P<nodes>[1-9]\d{0,4})nodes_(?P<gpus>[1-9]\d{0,3})gpus_per_node\.json"
)
LAYER = re.compile(
    r"layertype_(?P<type>\d{1,3})_bsz(?P<batch>[1-9]\d{0,6})_seq(?P<length>[1-9]\d{0,8})"
)
TIME = re.compile(
    r"(?P<operation>allreduce|all2all)_size_(?P<ranks>[1-9]\d{0,5})_(?P<size>[1-9]\d{0,6})MB_time"
)
BANDWIDTH = re.compile(r"allreduce_size_(?P<ranks>[1-9]\d{0,5})_consec_(?P<consecutive>[01])")
STAGES = re.compile(r"pp_size_(?P<stages>[1-9]\d{0,5})")
OPERATIONS: Mapping[str, Operation] = {"allreduce": "all_reduce", "all2all": "alltoall"}
MESSAGE_BYTES = 32 * 512 * 1024 * 2
OVERLAP_BYTES = 4096 * 4096 * 4


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Forward of layers, collectives, messages, overlap.

    Raises:
        SpecError: A file is no such file, or a needed option is missing.
    """
    points: list[Point] = []
    nodes, gpus = 1, request.gpus_per_node or 1
    networks = {file: NETWORK.fullmatch(base_name(file)) for file in texts}
    for machine in filter(None, networks.values()):
        nodes, gpus = max(nodes, int(machine["nodes"])), max(gpus, int(machine["gpus"]))
    for file, text in sorted(texts.items()):
        name, top = base_name(file), json_entry(file, text)
        found = networks[file]
        if computation := COMPUTATION.fullmatch(name):
            points += _layers(top, request, computation["precision"])
        elif found:
            points += _network(top, found["kind"], int(found["nodes"]), int(found["gpus"]))
        elif name == "overlap_coefficient.json":
            points.append(_overlap(top, nodes * gpus))
        else:
            known = "computation_profiling_*.json, allreduce_bandwidth_*.json, p2p_bandwidth_*.json"
            raise unknown_file(
                file, "Galvatron", f"{known}, sp_time_*.json or overlap_coefficient.json"
            )
    return Profile(
        gpu=request.gpu,
        num_nodes=nodes,
        gpus_per_node=gpus,
        origins=request.origins("Galvatron", texts),
        points=tuple(points),
        notes=(
            "Layers are differences of whole forwards; of several layer types the first is taken.",
            "Bandwidths are one point of 32 MiB each, the size of Galvatron's default.",
        ),
    )


def _layers(top: Entry, request: ImportRequest, precision: str) -> Iterator[LayerPoint]:
    """Forward of the first type of layer; a micro batch takes as long as its samples."""
    known = next((kind for kind in get_args(Precision) if kind == precision), None)
    model = need_model(request, top.file)
    matches = [(LAYER.fullmatch(key), entry) for key, entry in top.items()]
    layers = [(match, entry) for match, entry in matches if match and match["type"] == "0"]
    if not layers:
        raise SpecError(
            f"{top.file}: no key like layertype_0_bsz8_seq2048: let Galvatron process the "
            "data first"
        )
    for match, entry in layers:
        batch = int(match["batch"])
        yield LayerPoint(
            model=model,
            runtime="galvatron",
            kernels="fused",
            micro_batch_size=batch,
            seq_length=int(match["length"]),
            precision=known or need_precision(request, top.file),
            forward=stated(entry.positive(MILLISECOND) * batch),
        )


def _network(top: Entry, kind: str, nodes: int, gpus: int) -> Iterator[CollectivePoint]:
    """Points of one file of a machine."""
    for key, entry in top.items():
        if kind == "sp_time" and (time := TIME.fullmatch(key)):
            yield CollectivePoint(
                operation=OPERATIONS[time["operation"]],
                ranks=int(time["ranks"]),
                per_node=min(int(time["ranks"]), gpus),
                num_bytes=int(time["size"]) * MEBIBYTE,
                time=stated(entry.positive(MILLISECOND)),
            )
        elif kind == "allreduce_bandwidth" and (group := BANDWIDTH.fullmatch(key)):
            ranks, in_a_row = int(group["ranks"]), group["consecutive"] == "1"
            stride = 1 if in_a_row else _stride(entry, nodes * gpus, ranks)
            yield CollectivePoint(
                operation="all_reduce",
                ranks=ranks,
                per_node=min(ranks, -(-gpus // stride)),
                stride=stride,
                num_bytes=MESSAGE_BYTES,
                time=stated(_bus_seconds(entry, 2 * (ranks - 1) / ranks)),
            )
        elif kind == "p2p_bandwidth" and (pipeline := STAGES.fullmatch(key)):
            stride = _stride(entry, nodes * gpus, int(pipeline["stages"]))
            if nodes == 1 or stride >= gpus:
                yield CollectivePoint(
                    operation="p2p",
                    ranks=2,
                    per_node=2 if nodes == 1 else 1,
                    stride=stride,
                    num_bytes=MESSAGE_BYTES,
                    time=stated(_bus_seconds(entry, 1.0)),
                )
        else:
            raise SpecError(f"{entry.where}: not a key of {kind}: is this the right file?")


def _bus_seconds(entry: Entry, traffic: float) -> float:
    """Seconds of the default message, each rank of which sends `traffic` of it."""
    rate = entry.positive(MEBIBYTE / MILLISECOND)
    if not traffic:
        raise SpecError(f"{entry.where}: a group of one rank moves nothing: remove it")
    return MESSAGE_BYTES * traffic / rate


def _stride(entry: Entry, world_size: int, ranks: int) -> int:
    """Distance of members that are as far apart as can be."""
    if ranks > world_size or world_size % ranks:
        raise SpecError(
            f"{entry.where}: {ranks} does not divide the {world_size} GPUs of the file's name: "
            "correct the name"
        )
    return world_size // ranks


def _overlap(top: Entry, ranks: int) -> OverlapPoint:
    """The coefficient for both sides: it is the larger of the two."""
    if ranks == 1:
        raise SpecError(
            f"{top.file} does not say how many GPUs ran: give --gpus-per-node, or a file like "
            "allreduce_bandwidth_1nodes_8gpus_per_node.json with it"
        )
    slowdown = top["overlap_coe"].positive()
    return OverlapPoint(
        operation="all_reduce",
        ranks=ranks,
        num_bytes=OVERLAP_BYTES,
        compute_slowdown=slowdown,
        communication_slowdown=slowdown,
    )
