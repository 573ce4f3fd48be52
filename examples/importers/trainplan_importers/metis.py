"""Files of Metis: `DeviceType.<GPU>_tp<degree>_bs<micro batch>.json`.

`execution_time.layer_compute_total_ms` lists milliseconds of forward and backward together, first
the embedding, last the head, layers between. Other times are of a whole iteration, and memory is
reserved memory with states in it, so both are left out.

Source: SamsungLabs/Metis README.md, section "Profile Data Guide".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import median

from trainplan.costmodel.base import SpecError, json_entry
from trainplan.costmodel.profiles import LayerPoint, Profile
from trainplan.profiler.importers import ImportRequest, base_name, stated
from trainplan_importers.reading import (
    MILLISECOND,
    need_model,
    need_precision,
    need_seq_length,
    unknown_file,
)

NAME = re.compile(r"DeviceType\.(?P<gpu>.+)_tp(?P<tp>[1-9]\d{0,4})_bs(?P<batch>[1-9]\d{0,6})\.json")


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Layers by tensor-parallel degree and micro-batch size.

    Raises:
        SpecError: A file is no such file, or a needed option is missing.
    """
    points = tuple(_layer(file, text, request) for file, text in sorted(texts.items()))
    return Profile(
        gpu=request.gpu,
        gpus_per_node=request.gpus_per_node or max(point.tp for point in points),
        origins=request.origins("Metis", texts),
        points=points,
        notes=("Times of layers were taken with a synchronization in front of each.",),
    )


def _layer(file: str, text: str, request: ImportRequest) -> LayerPoint:
    """The median of the layers between embedding and head."""
    name = NAME.fullmatch(base_name(file))
    if not name:
        raise unknown_file(file, "Metis", "DeviceType.A100_tp1_bs1.json")
    times = json_entry(file, text)["execution_time"]["layer_compute_total_ms"]
    layers = [entry.positive(MILLISECOND) for entry in times.elements()][1:-1]
    if not layers:
        raise SpecError(f"{times.where}: expected an embedding, layers and a head: add the layers")
    tp = int(name["tp"])
    return LayerPoint(
        model=need_model(request, file),
        runtime="megatron-lm",
        kernels="legacy",
        attention="unfused",
        tp=tp,
        micro_batch_size=int(name["batch"]),
        seq_length=need_seq_length(request, file),
        precision=need_precision(request, file),
        collectives_inside=tp > 1,
        both=stated(median(layers)),
    )
