"""Files of Aceso's profiler, a folder of CSV files.

`<model>_mbs<micro batch>_tp<degree>_algo<partition>.csv` has one row for each operation:
microseconds of forward and backward with the tensor-parallel all-reduces in them, MiB of tensors
of 2 bytes. Partition 0 is Megatron-LM's, and the only one read.

Source: Liu et al., Aceso, EuroSys 2024, whose profiler writes them; that all-reduces are inside
is derived: on A10G (6.7B, micro batch 2) the backward of the QKV product takes 13.3 ms at tp = 1
and 27.9 ms at tp = 2, which is an all-reduce of 32 MiB more than half of it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import MICROSECOND, SpecError, positive
from trainplan.costmodel.job import storage_bytes
from trainplan.costmodel.profiles import EndPoint, Failure, LayerPoint, Profile
from trainplan.profiler.importers import ImportRequest, base_name, stated
from trainplan_importers.aceso_collectives import read_collectives
from trainplan_importers.reading import MEBIBYTE, need_model

OPERATIONS = re.compile(
    r"(?P<model>.+)_mbs(?P<batch>[1-9]\d{0,6})_tp(?P<tp>[1-9]\d{0,4})_algo(?P<algo>\d{1,3})\.csv"
)
COLUMNS = ["op_name", "forward-compute", "backward-compute", "input_size", "output_size"]
WEIGHTS, ACTIVATIONS = 5, 6
LAYER = (
    "enc-1st-layernorm",
    "enc-attention-qkv",
    "enc-attention-score",
    "enc-attention-softmax",
    "enc-attention-dropout",
    "enc-attention-context",
    "enc-attention-dense",
    "enc-post-attention-dropout",
    "enc-2nd-layernorm",
    "enc-MLP-GEMM-1",
    "enc-MLP-gelu",
    "enc-MLP-GEMM-2",
    "enc-post-MLP-dropout",
)
HEAD = ("final-layernorm", "gpt-post-process")
FAILED_MICROSECONDS = 1e7
"""Written where an operation ran out of memory."""


@dataclass(frozen=True, slots=True)
class GptSize:
    """What tells one GPT from another."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int


GPT_SIZES: Mapping[str, GptSize] = {
    "gpt_1_3B": GptSize(24, 2048, 32),
    "gpt_2_6B": GptSize(32, 2560, 32),
    "gpt_6_7B": GptSize(32, 4096, 32),
    "gpt_13B": GptSize(40, 5120, 40),
    "gpt_20B": GptSize(44, 6144, 64),
    "gpt_22B": GptSize(48, 6144, 64),
    "gpt_40B": GptSize(48, 8192, 64),
}
"""Models by name.

Source: arguments printed in the runtime logs of Dazz993/Mist@d69e530a,
benchmark/superscaler/results-ref; width and heads agree with tensor sizes of the files.
"""
GPT_VOCABULARY = 50257


@dataclass(frozen=True, slots=True)
class _Row:
    """One operation."""

    forward_seconds: float
    backward_seconds: float
    input_bytes: float
    weight_bytes: float
    saved_bytes: float
    """Memory that forward leaves behind."""


@dataclass(frozen=True, slots=True)
class _Table:
    """One file of operations."""

    file: str
    model: str
    micro_batch_size: int
    tp: int
    rows: Mapping[str, _Row]

    def of(self, *names: str) -> tuple[_Row, ...]:
        """Rows by name.

        Raises:
            SpecError: An operation is missing.
        """
        missing = [name for name in names if name not in self.rows]
        if missing:
            raise SpecError(f"{self.file}: no row {missing[0]!r}: give the whole file")
        return tuple(self.rows[name] for name in names)


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Layers and ends by model, degree and micro-batch size; collectives; messages.

    Raises:
        SpecError: A file is no such file, or a needed option is missing.
    """
    tables, failures = _tables(texts)
    rest = {file: text for file, text in texts.items() if not _is_operations(file)}
    collectives = read_collectives(rest)
    sizes = [1, *(ranks for _, ranks, _ in collectives.samples), *(t.tp for t in tables)]
    gpus = request.gpus_per_node or max(sizes)
    return Profile(
        gpu=request.gpu,
        num_nodes=2 if "inter" in collectives.messages else 1,
        gpus_per_node=gpus,
        origins=request.origins("Aceso", texts),
        failures=tuple(failures),
        points=(
            *(_layer(table, request) for table in tables),
            *(end for table in tables if table.tp == 1 for end in _ends(table, request)),
            *collectives.points(gpus),
        ),
        notes=(
            "Layers are sums of operations timed alone; at tp > 1 their collectives are inside.",
            "GB/s of messages are taken as 10^9, their sizes as MiB: the files do not say.",
        ),
    )


def _is_operations(file: str) -> bool:
    return OPERATIONS.fullmatch(base_name(file)) is not None


def _tables(texts: Mapping[str, str]) -> tuple[Sequence[_Table], Sequence[Failure]]:
    """Files of operations of Megatron-LM's partition, and those that ran out of memory."""
    tables: list[_Table] = []
    failures: list[Failure] = []
    for file, text in sorted(texts.items()):
        found = OPERATIONS.fullmatch(base_name(file))
        if not found or found["algo"] != "0":
            continue
        rows = _operations(file, text)
        if rows is None:
            failures.append(Failure(item=base_name(file), detail="ran out of memory"))
        else:
            batch, tp = int(found["batch"]), int(found["tp"])
            tables.append(_Table(file, found["model"], batch, tp, rows))
    return tables, failures


def _operations(file: str, text: str) -> Mapping[str, _Row] | None:
    """Rows by operation; null where one failed."""
    lines = list(csv.reader(text.splitlines()))
    if not lines or lines[0][: len(COLUMNS)] != COLUMNS:
        raise SpecError(f"{file}: the first line is not {','.join(COLUMNS)},...: wrong file?")
    rows: dict[str, _Row] = {}
    for line in filter(None, lines[1:]):
        if len(line) <= ACTIVATIONS:
            raise SpecError(f"{file}: {line[0]!r} has {len(line)} columns: give the whole file")
        where = f"{file}: {line[0]}"
        forward, backward = (positive(where, value) for value in line[1:3])
        if max(forward, backward) >= FAILED_MICROSECONDS:
            return None
        size, weights, kept = (_size(where, line[i]) for i in (3, WEIGHTS, ACTIVATIONS))
        times = (forward * MICROSECOND, backward * MICROSECOND)
        rows[line[0]] = _Row(*times, size, weights, kept)
    return rows


def _size(where: str, text: str) -> float:
    """Bytes; a zero is allowed."""
    try:
        zero = float(text) == 0
    except ValueError:
        zero = False
    return 0.0 if zero else positive(where, text, MEBIBYTE)


def _model(table: _Table, request: ImportRequest) -> tuple[ModelSpec, int]:
    """The model and its sequence length, both checked against sizes of tensors."""
    width = storage_bytes(request.precision or "fp16")
    inputs = table.of(LAYER[0])[0].input_bytes
    if table.model in GPT_SIZES and request.model is None:
        size = GPT_SIZES[table.model]
        seq_length = round(inputs / (table.micro_batch_size * size.hidden_size * width))
        model = gpt(table.model, size, max(seq_length, 1))
    else:
        model = need_model(request, table.file)
        seq_length = round(inputs / (table.micro_batch_size * model.hidden_size * width))
    scores = table.of("enc-attention-score")[0].saved_bytes * table.tp / width
    scores /= table.micro_batch_size
    wrong = abs(scores - model.num_attention_heads * seq_length**2) > 0.01 * scores
    if seq_length < 1 or wrong or request.seq_length not in (None, seq_length):
        raise SpecError(
            f"{table.file}: tensor sizes do not fit {model.name} (hidden_size {model.hidden_size}, "
            f"{model.num_attention_heads} heads) at sequence length "
            f"{request.seq_length or seq_length}: correct --model or --seq-length"
        )
    return model, seq_length


def gpt(name: str, size: GptSize, seq_length: int) -> ModelSpec:
    """A GPT as Megatron-LM 2 builds it: learned positions, biases, tied embeddings."""
    return ModelSpec(
        name=name.replace("gpt_", "GPT-").replace("_", "."),
        num_hidden_layers=size.num_hidden_layers,
        hidden_size=size.hidden_size,
        intermediate_size=4 * size.hidden_size,
        num_attention_heads=size.num_attention_heads,
        num_key_value_heads=size.num_attention_heads,
        head_dim=size.hidden_size // size.num_attention_heads,
        vocab_size=GPT_VOCABULARY,
        max_position_embeddings=seq_length,
        position_embedding="learned",
        norm="layernorm",
        activation="gelu",
        gated_mlp=False,
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    )


def _layer(table: _Table, request: ImportRequest) -> LayerPoint:
    """The operations of a layer, added."""
    model, seq_length = _model(table, request)
    rows = table.of(*LAYER)
    return LayerPoint(
        model=model,
        runtime="megatron-lm",
        kernels="fused",
        attention="unfused",
        tp=table.tp,
        micro_batch_size=table.micro_batch_size,
        seq_length=seq_length,
        precision=request.precision or "fp16",
        collectives_inside=table.tp > 1,
        alone=True,
        forward=stated(sum(row.forward_seconds for row in rows)),
        backward=stated(sum(row.backward_seconds for row in rows)),
        saved_bytes=sum(row.saved_bytes for row in rows),
    )


def _ends(table: _Table, request: ImportRequest) -> tuple[EndPoint, EndPoint]:
    """Embedding and head; rows of the vocabulary from the bytes of the projection's weights."""
    model, seq_length = _model(table, request)
    lookup, head_rows = table.of("encoder-embedding")[0], table.of(*HEAD)
    weights = head_rows[-1].weight_bytes
    precision = request.precision or "fp16"
    embedding = EndPoint(
        kind="embedding",
        tokens=table.micro_batch_size * seq_length,
        hidden_size=model.hidden_size,
        vocab_size=max(1, round(weights / model.hidden_size / storage_bytes(precision))),
        runtime="megatron-lm",
        kernels="fused",
        alone=True,
        precision=precision,
        forward=stated(lookup.forward_seconds),
        backward=stated(lookup.backward_seconds),
    )
    seconds = {
        "forward": stated(sum(row.forward_seconds for row in head_rows)),
        "backward": stated(sum(row.backward_seconds for row in head_rows)),
    }
    head = embedding.model_copy(update={"kind": "head", **seconds})
    return embedding, head
