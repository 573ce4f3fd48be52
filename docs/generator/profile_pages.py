"""Reference of profiles: what is measured, what a file holds, what can be imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import get_args

from page_parts import Lines, table

from trainplan.cli.documents.registry import document_schema, documented
from trainplan.costmodel.profiles import profile
from trainplan.profiler.bench.items import ITEMS
from trainplan.profiler.importers import IMPORTERS
from trainplan.profiler.journal.records import SCHEMA, Done
from trainplan.profiler.journal.samples import MOST_SAMPLES, Samples

PARTS: Sequence[tuple[str, str, type]] = (
    ("origins[]", "Who measured, and when.", profile.Origin),
    ("hosts[]", "The nodes.", profile.Host),
    ("software", "Versions.", profile.Software),
    ("failures[]", "What was asked for and not measured.", profile.Failure),
    ("a timing", "Every time of a point.", profile.Timing),
)
SAME_KERNELS = "runtimes of the same library, else with the same kernels"
FEEDS = {
    "memory": "memory outside the allocator; the reserve fraction informs only",
    "layer": f"layers of {SAME_KERNELS}; the bytes kept inform only",
    "gemm": "matrix products",
    "attention": "attention",
    "embedding": f"the embedding of {SAME_KERNELS}",
    "head": f"the head of {SAME_KERNELS}",
    "optimizer": "the optimizer step",
    "stream": "kernels without reuse, the start of a kernel",
    "collectives": "collectives in a node, of neighbours and of strided groups, and between nodes",
    "p2p": "messages between two GPUs of a node, by how far apart they are",
    "overlap": "compute during traffic of FSDP, on a CPU of replicas too; exchanges, messages and "
    "copies inform only",
    "links": "nothing: notes name slow ones",
    "copies": "offloading to the host",
    "cpu_adam": "the optimizer step in host memory",
    "drive": "what lies on drives; speeds through the cache inform only",
    "offloaded_step": "nothing: it is told beside its own estimate",
    "power": "nothing: it informs only",
}
"""What of an estimate each item sets."""
PRECISION = "Number format."
FIELDS = {
    "Profile.num_nodes": "Nodes that were measured together.",
    "Profile.gpus_per_node": "GPUs of one node, or processes on a CPU.",
    "Profile.origins": "Where the numbers come from.",
    "Profile.hosts": "The nodes that were measured.",
    "Profile.software": "Versions that were measured with; absent in an import.",
    "Profile.points": "All measurements, one a line.",
    "Profile.failures": "What was asked for and not measured.",
    "Origin.command": "The command line that measured.",
    "Origin.wall_seconds": "How long it took, without earlier runs of the same journal.",
    "Host.name": "What the host calls itself.",
    "Host.num_gpus": "GPUs that were measured, or processes on a CPU.",
    "Host.gpu_names": "Names the driver gives; empty on a CPU.",
    "Host.cpu": "Name of the processor.",
    "Host.num_cores": "Cores that the processes may use.",
    "Host.memory_bytes": "Memory of the host.",
    "Host.driver": "Version of the GPU driver.",
    "Software.torch": "Version of torch.",
    "Software.cuda": "Version of CUDA or ROCm torch was built for.",
    "Software.nccl": "Version of NCCL or RCCL.",
    "Software.backend": "What moved the messages: `nccl` or `gloo`.",
    "Failure.item": "Item of the measurement, or the file of an import.",
    "Failure.detail": "The task, and why it failed.",
    "Failure.rank": "The rank that failed first, where one did.",
    "Failure.host": "Its node.",
    "Timing.repeats": "Calls, or blocks of calls, that were timed.",
    "Timing.flags": "What is wrong: `noisy`, `drift`, `outliers`, `throttled`, `with_host`, "
    "`stated`.",
    "Timing.slowest_rank": "The rank that was slowest most often.",
    "ProductPoint.m": "Rows, the tokens of a rank; with `groups`, tokens of one group on average. "
    "Of a weight gradient the inputs of the layer.",
    "ProductPoint.n": "Columns, the outputs of the layer, also of a weight gradient; of an input "
    "gradient its inputs.",
    "ProductPoint.k": "Inner size, what is summed over: the inputs of the layer; of an input "
    "gradient its outputs; of a weight gradient the tokens, with `groups` those of one group on "
    "average.",
    "ProductPoint.groups": "Experts in one grouped kernel, each with `m`, `n` and `k` of its own; "
    "1: a plain product.",
    "ProductPoint.precision": PRECISION,
    "ProductPoint.time": "Of the product, or of all groups together.",
    "AttentionPoint.micro_batch_size": "Sequences in the batch.",
    "AttentionPoint.seq_length": "Tokens of one sequence.",
    "AttentionPoint.num_heads": "Query heads on this rank.",
    "AttentionPoint.num_key_value_heads": "Key and value heads on this rank.",
    "AttentionPoint.head_dim": "Size of queries and keys of one head.",
    "AttentionPoint.value_dim": "Size of values of one head.",
    "AttentionPoint.precision": PRECISION,
    "AttentionPoint.forward": "Of the forward pass.",
    "AttentionPoint.backward": "Of the backward pass; absent where it was not measured.",
    "LayerPoint.moe": "A layer with experts, not a dense one.",
    "LayerPoint.attention": "`flash` for a fused kernel, `unfused` where scores are written out.",
    "LayerPoint.tp": "Tensor-parallel degree of its slice.",
    "LayerPoint.ep": "Expert-parallel degree of its slice.",
    "LayerPoint.micro_batch_size": "Sequences in the batch.",
    "LayerPoint.seq_length": "Tokens of one sequence.",
    "LayerPoint.precision": PRECISION,
    "LayerPoint.forward": "Of the forward pass; absent where only both are known.",
    "LayerPoint.saved_bytes": "Kept from forward to backward; informs only.",
    "EndPoint.tokens": "Tokens of the batch.",
    "EndPoint.hidden_size": "Width of the model.",
    "EndPoint.runtime": "What ran it, as in a layer.",
    "EndPoint.precision": PRECISION,
    "EndPoint.forward": "Of the forward pass.",
    "EndPoint.backward": "Of the backward pass.",
    "OptimizerPoint.num_params": "Parameters that are updated.",
    "OptimizerPoint.threads": "Threads of the process, in host memory.",
    "OptimizerPoint.time": "Of one step.",
    "StreamPoint.name": "The kernel. `permute` and `permute_backward` sort rows by expert, `loss` "
    "is the fused cross entropy: they set their own terms, all others together the rest.",
    "StreamPoint.time": "Of one call.",
    "CollectivePoint.operation": "`all_reduce`, `all_gather`, `reduce_scatter`, `alltoall`, `p2p`.",
    "CollectivePoint.time": "Of one call, on the slowest rank.",
    "LinkPoint.source": "One end: a node, or a GPU of one.",
    "LinkPoint.target": "The other end.",
    "LinkPoint.num_bytes": "Bytes one way.",
    "LinkPoint.time": "Until they are there.",
    "CopyPoint.direction": "`host_to_device`, `device_to_host`, `host_to_host`, `nvme_read` or "
    "`nvme_write`.",
    "CopyPoint.num_bytes": "Bytes of one copy.",
    "CopyPoint.time": "Of one copy.",
    "OffloadedStepPoint.layers": "Layers of the model.",
    "OffloadedStepPoint.tokens": "Tokens of the batch.",
    "OffloadedStepPoint.written_bytes": "To the drive in a step.",
    "OverlapPoint.operation": "What runs beside the compute: a collective, `p2p` where every rank "
    "sends to the next one, or copies of pinned memory, `host_to_device` or `device_to_host`.",
    "OverlapPoint.communication_slowdown": "Seconds of that beside compute over those alone.",
    "MemoryPoint.name": "`context_bytes` and `communicator_bytes` count as memory outside the "
    "allocator; `reserve_fraction` informs only.",
    "MemoryPoint.value": "Bytes, or the fraction the allocator reserves beyond what it hands out.",
    "PowerPoint.state": "What the GPU does: `idle`, or the load.",
    "PowerPoint.watts": "Mean power.",
    "PowerPoint.joules_per_call": "Energy of one call of the load.",
    "Done.record": "`done`; others are `header`, `start`, `interrupted`, `failed`, `remark` and "
    "`left out`. A task measured again has several.",
    "Done.item": "Item of the task.",
    "Done.key": "Name of the task in its item.",
    "Done.points": "What it gave, as in the profile.",
}
"""Meanings of fields that have no docstring, or one that is too short for a page."""


def profile_page() -> Lines:
    """Items, keys, points and importers."""
    yield from ("# Profiles", "")
    yield f"A file of `plan profile`: schema `{profile.Profile.SCHEMA}`, one point a line, all"
    yield "times in seconds, all sizes in bytes. [JSON Schema](profile.schema.json). Commands take"
    yield "it as `--profile`, or as `--cluster`: machine and measurements together. How to make"
    yield "one: [measure your machines](../how-to/measure-your-machines.md)."
    yield from ("", "## What is measured", "")
    yield "In this order; `--only NAME` chooses."
    yield ""
    rows = ((f"`{i.name}`", i.what, FEEDS[i.name]) for i in ITEMS.values())
    yield from table(("item", "measures", "sets in an estimate"), rows)
    yield from ("", "## What can be imported", "")
    yield "`plan import FORMAT FILE... --gpu GPU --output profile.json`; whole steps of a log or a"
    yield "trace of the torch profiler go to `plan calibrate --log`."
    yield ""
    formats = ((f"`{one.name}`", one.reads) for one in IMPORTERS.values())
    yield from table(("format", "reads"), formats)
    yield "Those of other planners (`aceso`, `galvatron`, `metis`, `sailor`, `simumax`) are of"
    yield "a plug-in: `pip install ./examples/importers`."
    yield from ("", "## The document", "")
    yield from table(("key", "meaning"), _fields(profile.Profile))
    for path, text, owner in PARTS:
        yield from (f"### {path}", "", text, "", *table(("key", "meaning"), _fields(owner)))
    yield from ("## Points", "")
    yield "`kind` tells which; identity of a point is all of it but its times and results."
    yield ""
    for owner in get_args(get_args(profile.Point)[0]):
        kinds = " or ".join(f"`{kind}`" for kind in get_args(owner.model_fields["kind"].annotation))
        about = (owner.__doc__ or "").split("\n")[0]
        yield from (f"### {kinds}", "", about, "", *table(("key", "meaning"), _fields(owner)))
    yield from _journal()


def _journal() -> Lines:
    """What a task leaves in the journal."""
    yield from ("## The journal", "")
    yield f"`OUTPUT.journal.jsonl`: schema `{SCHEMA}`, one record a line, on the drive"
    yield "as soon as it is known. Each ends with `crc32`, the checksum of its text without it."
    yield "A task that ended well leaves this one, with all that was timed:"
    yield from ("", *table(("key", "meaning"), _fields(Done)))
    yield from ("### samples[]", "")
    yield f"At most {MOST_SAMPLES} of each timing, of more evenly spaced ones. Its median, spread"
    yield "and flags are worked out of them whenever the journal is read."
    yield from ("", *table(("key", "meaning"), _fields(Samples)))


def schema_text() -> str:
    """As `plan schema profile` prints it."""
    return json.dumps(document_schema("profile"), indent=1) + "\n"


def _fields(owner: type) -> Iterator[tuple[str, str]]:
    for name, docstring in documented(owner):
        if name != "kind":
            text = FIELDS.get(f"{owner.__name__}.{name}") or docstring
            assert text, f"say in FIELDS what {owner.__name__}.{name} is"
            yield f"`{name}`", text
