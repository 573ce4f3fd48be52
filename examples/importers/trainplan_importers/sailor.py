"""Files of Sailor.

`profile.json` holds {micro batch: {tp: {layer: [forward, backward, update]}}} in seconds, first the
embedding, last the head; `profiles_tmp.json` the same under the names of model and GPU.
Collectives of a tensor-parallel group are inside the times. `network_coeffs*.json` and
`intra_node_bandwidths.json` hold [[a, b, c], most]: the bandwidth a x^2 + b x + c in GB/s at
x = log2(bytes / 10^6), and its largest in bytes/s. It is the sum over pairs of GPUs that send at
the same time: half of the count inside a node, all of it between nodes.

Source: eth-easl/sailor docs/PROFILING.md and sailor/profiling/networking (what is fitted and
summed).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from trainplan.costmodel.base import GB, Entry, SpecError, json_entry
from trainplan.costmodel.profiles import CollectivePoint, LayerPoint, Profile
from trainplan.profiler.importers import ImportRequest, base_name, stated
from trainplan_importers.reading import need_model, need_precision, need_seq_length, unknown_file

GPUS: Mapping[str, str] = {
    "a100-sxm-40gb": "A100-40",
    "a100-sxm-80gb": "A100-80",
    "gh200-96gb": "GH-96",
    "rtx-3090": "RTX-3090",
    "v100-sxm-16gb": "V100-16",
}
"""Sailor's names by ours; others are looked up as they are."""
SIZES = tuple(2**power for power in range(20, 31, 2))
"""Bytes at which a fitted bandwidth becomes points; 2^16 to 2^30 were measured, and below 2^20 the
parabola of fast links is negative."""
MEGABYTE = 10**6


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Layers of one model and messages of one GPU.

    Raises:
        SpecError: A file is no such file, has no such model or GPU, or an option is missing.
    """
    layers: list[LayerPoint] = []
    messages: list[CollectivePoint] = []
    for file, text in sorted(texts.items()):
        top, name = json_entry(file, text), base_name(file)
        if name.endswith("profile.json"):
            layers += _layers(top, request)
        elif name.startswith("profiles_tmp"):
            layers += _layers(_of_gpu(_of_model(top, request), request), request)
        elif name.startswith("network_coeffs"):
            inside, between = top.get("intra"), top.get("inter")
            messages += _inside(_of_gpu(inside, request)) if inside else ()
            messages += _between(_of_gpu(between, request)) if between else ()
        elif name.startswith("intra_node_bandwidths"):
            messages += _inside(_of_gpu(top, request))
        else:
            raise unknown_file(
                file, "Sailor", "profile.json, profiles_tmp.json, network_coeffs.json"
            )
    node = [point.stride for point in messages] + [layer.tp for layer in layers]
    return Profile(
        gpu=request.gpu,
        num_nodes=2 if any(point.per_node == 1 for point in messages) else 1,
        gpus_per_node=request.gpus_per_node or max(node),
        origins=request.origins("Sailor", texts),
        points=(*layers, *dict.fromkeys(messages)),
        notes=(
            "Messages come from a parabola through measured bandwidths; sizes are in steps of 4.",
            "Times of the embedding, the head and the update are left out: the hooks see no "
            "gradient of tokens, not every head has the projection, updates are means of layers.",
        ),
    )


def _of_model(top: Entry, request: ImportRequest) -> Entry:
    """What is there of the model: the longest name that its own begins with."""
    name = need_model(request, top.file).name
    known = (key for key, _ in top.items() if name.lower().startswith(key.lower()))
    return top[max(known, key=len, default=name)]


def _of_gpu(entry: Entry, request: ImportRequest) -> Entry:
    """What is there of the GPU."""
    names = (request.gpu, GPUS.get(request.gpu, request.gpu))
    found = next((value for key, value in entry.items() if key in names), None)
    if found is None:
        known = ", ".join(key for key, _ in entry.items())
        raise SpecError(f"{entry.where}: nothing of {request.gpu}: give one of {known} as --gpu")
    return found


def _layers(top: Entry, request: ImportRequest) -> Iterator[LayerPoint]:
    """Medians of the layers between embedding and head."""
    model = need_model(request, top.file)
    for batch, degrees in top.items():
        for degree, entries in degrees.items():
            layers = [entry for _, entry in sorted(entries.items(), key=_index)]
            if not 0 <= len(layers) - 2 - model.num_hidden_layers <= 1:
                raise SpecError(
                    f"{entries.where}: {len(layers)} entries, but {model.name} has "
                    f"{model.num_hidden_layers} layers and two ends: correct --model"
                )
            layers = layers[1 : model.num_hidden_layers + 1]
            times = [[part.positive() for part in layer.elements()[:2]] for layer in layers]
            if any(len(pair) < 2 for pair in times):
                raise entries.wrong("[forward, backward, update] of each layer")
            tp = _count(degree, entries)
            yield LayerPoint(
                model=model,
                runtime="megatron-deepspeed",
                kernels="legacy",
                attention="unfused",
                tp=tp,
                micro_batch_size=_count(batch, degrees),
                seq_length=need_seq_length(request, top.file),
                precision=need_precision(request, top.file),
                collectives_inside=tp > 1,
                forward=stated(median(pair[0] for pair in times)),
                backward=stated(median(pair[1] for pair in times)),
            )


def _index(item: tuple[str, Entry]) -> int:
    """Position of a layer."""
    key, entry = item
    return _count(key, entry, least=0)


def _count(key: str, entry: Entry, least: int = 1) -> int:
    """A key that is a whole number."""
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) >= least):
        raise SpecError(
            f"{entry.where}: the key {key!r} is no whole number: is this the right file?"
        )
    return int(key)


def _inside(entry: Entry) -> Iterator[CollectivePoint]:
    """Messages inside a node: half of the GPUs send to the other half."""
    counts = {_count(key, value): value for key, value in entry.items()}
    for ranks, fit in counts.items():
        pairs = ranks // 2
        for num_bytes, seconds in _seconds(fit, max(pairs, 1)):
            yield CollectivePoint(
                operation="p2p",
                ranks=2,
                per_node=2,
                stride=max(pairs, 1),
                num_bytes=num_bytes,
                time=stated(seconds),
            )


def _between(entry: Entry) -> Iterator[CollectivePoint]:
    """Messages between two nodes, all of whose GPUs send."""
    counts = {_count(key, value): value for key, value in entry.items()}
    gpus = max(counts)
    for num_bytes, seconds in _seconds(counts[gpus], gpus):
        yield CollectivePoint(
            operation="p2p",
            ranks=2,
            per_node=1,
            stride=gpus,
            num_bytes=num_bytes,
            time=stated(seconds),
        )


def _seconds(fit: Entry, pairs: int) -> Iterator[tuple[int, float]]:
    """Bytes and seconds of one message, where the parabola is positive and rises."""
    parts = fit.elements()
    if len(parts) != 2 or len(parts[0].elements()) != 3:
        raise fit.wrong("[[a, b, c], largest bandwidth]")
    a, b, c = (part.number() for part in parts[0].elements())
    most = parts[1].positive()
    for num_bytes in SIZES:
        x = math.log2(num_bytes / MEGABYTE)
        rate = min((a * x * x + b * x + c) * GB, most)
        if rate > 0 and 2 * a * x + b > 0:
            yield num_bytes, num_bytes * pairs / rate
