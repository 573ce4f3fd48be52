"""Which products are measured: those of the model, and some spread out for the fitted surface."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as combinations
from math import ceil
from typing import Literal

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.costmodel.residuals import NUGGET, covariance
from trainplan.costmodel.shards import VOCAB_MULTIPLE
from trainplan.profiler.task import Request

SPREAD_OCTAVES = 8.0
"""Distance over which products say something about each other before a curve goes through them.

Source: `measured`, chosen on recorded products of B200, by which nothing else is judged: at 4 to 24
octaves the median errors of 12 shapes differ by 0.4 points (examples/profile_fits).
"""


def most_telling(places: FloatColumn, known: FloatColumn, count: int) -> list[int]:
    """Rows of `places` to measure beside `known`, the most telling first; all are log2 of sizes.

    Each is the one that leaves least unknown of all places, given those before it.
    Source: Seo, Wallat, Graepel and Obermayer, Gaussian process regression: active data selection
    and test point rejection, IJCNN 2000 (after Cohn): one more point takes from the sum of the
    variances the squares of its covariances over its own variance.
    """
    unknown = _unknown(places, known)
    found: list[int] = []
    for _ in range(min(count, len(places))):
        gain = (unknown**2).sum(axis=0) / (np.diag(unknown) + NUGGET)
        gain[found] = -1.0
        best = int(np.argmax(gain))
        found.append(best)
        column = unknown[:, best]
        unknown = unknown - np.outer(column, column) / (column[best] + NUGGET)
    return found


def _unknown(places: FloatColumn, known: FloatColumn) -> FloatColumn:
    """Covariance of what is not known at `places` once `known` are measured.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.24.
    """
    before = covariance(places, places, SPREAD_OCTAVES)
    across = covariance(known, places, SPREAD_OCTAVES)
    own = covariance(known, known, SPREAD_OCTAVES) + NUGGET * np.eye(len(known))
    return np.asarray(before - across.T @ np.linalg.solve(own, across))


Device = Literal["cuda", "cpu"]
Pass = Literal["forward", "input", "weight"]
"""Forward product, gradient of its input, gradient of its weight."""

SPREAD, SPREAD_QUICK = 12, 6
"""Shapes for the fitted surface.

Source: `measured`, the curve through 12 spread shapes tells others of 26 recorded tables of A100,
H100 and H200 by 5 to 6 % in the median; 96 tell them by 4 to 5 % (examples/profile_fits).
"""
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Caps:
    """Most work that one measurement may be."""

    flop: float
    """Of one product."""
    tensor_bytes: float

    @property
    def layer_flop(self) -> float:
        """Of one forward pass of a layer or of the head, which has some products."""
        return 4 * self.flop


def caps(device: Device, *, quick: bool) -> Caps:
    """Most work of one measurement on a device.

    Source: derived; two CPU cores do about 10^11 FLOP a second, so a product ends in 0.1 s; a GPU
    does 10^14 to 10^15, and 2 x 10^13 is the largest product of a head at 8192 tokens.
    """
    if device == "cpu":
        return Caps(flop=2e9 if quick else 8e9, tensor_bytes=256e6)
    return Caps(flop=2e13, tensor_bytes=2.0**32)


@dataclass(frozen=True, slots=True)
class Shape:
    """A product `m x k` times `k x n`, or `groups` of them; names as in `ProductPoint`."""

    m: int
    n: int
    k: int
    groups: int = 1
    weight_gradient: bool = False
    part: Pass = field(default="forward", compare=False)
    """Whose memory layout it has: two passes with the same numbers are measured once."""

    @property
    def flop(self) -> float:
        """Of all groups.

        Source: each of the m n elements of a group's result is a sum of k products: k
        multiplications and k additions.
        """
        return 2.0 * self.m * self.n * self.k * self.groups

    @property
    def largest(self) -> int:
        """Elements of its largest tensor.

        Source: a product reads m x k and k x n elements and writes m x n, in each group; the
        largest of the three counts.
        """
        return self.groups * max(self.m * self.k, self.k * self.n, self.m * self.n)

    @property
    def text(self) -> str:
        """For the key of a task."""
        groups = f" groups={self.groups}" if self.groups > 1 else ""
        return f"m={self.m} n={self.n} k={self.k}{groups}" + (
            " weight_gradient" if self.weight_gradient else ""
        )

    def fits(self, limit: Caps) -> bool:
        """Is it little enough work?"""
        return self.flop <= limit.flop and self.largest * FP32_BYTES <= limit.tensor_bytes


def three_passes(forward: Shape) -> tuple[Shape, Shape, Shape]:
    """A product and its input and weight gradients.

    Source: `costmodel.kernels.linear_seconds`.
    """
    m, n, k, groups = forward.m, forward.n, forward.k, forward.groups
    return (
        forward,
        Shape(m, k, n, groups, part="input"),
        Shape(k, n, m, groups, weight_gradient=True, part="weight"),
    )


def padded_rows(model: ModelSpec, tp: int) -> int:
    """Rows of the vocabulary on one rank. Source: `blocks.embedding_and_head.padded_vocab`."""
    return ceil(model.vocab_size / (VOCAB_MULTIPLE * tp)) * VOCAB_MULTIPLE


def attention_products(model: ModelSpec, tokens: int, tp: int) -> tuple[Shape, ...]:
    """Projections of one layer. Source: `costmodel.blocks.attention.core`."""
    h, mla = model.hidden_size, model.mla
    output = Shape(tokens, h, value_columns(model) // tp)
    if mla is None:
        width = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
        return Shape(tokens, width // tp, h), output
    up = model.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim) // tp
    downs = [Shape(tokens, mla.kv_lora_rank + mla.qk_rope_head_dim, h)]
    downs += [Shape(tokens, mla.q_lora_rank, h)] if mla.q_lora_rank else []
    queries = Shape(tokens, query_columns(model) // tp, mla.q_lora_rank or h)
    return *downs, Shape(tokens, up, mla.kv_lora_rank), queries, output


def mlp_products(model: ModelSpec, width: int, tokens: int, tp: int) -> tuple[Shape, ...]:
    """Up (and gate) and down projection. Source: `blocks.feed_forward.mlp.products_seconds`."""
    cut = width // tp
    ups = 2 if model.gated_mlp else 1
    return Shape(tokens, ups * cut, model.hidden_size), Shape(tokens, model.hidden_size, cut)


def expert_products(model: ModelSpec, tokens: int, ep: int) -> tuple[Shape, ...]:
    """Grouped products of one rank, balanced. Source: `blocks.feed_forward.products`."""
    moe = model.moe
    assert moe is not None
    local = max(1, moe.num_experts // ep)
    rows, width = max(1, tokens * moe.num_experts_per_tok // local), moe.moe_intermediate_size
    ups = 2 if model.gated_mlp else 1
    return (
        Shape(rows, ups * width, model.hidden_size, local),
        Shape(rows, model.hidden_size, width, local),
    )


def products(model: ModelSpec, tokens: int, degree: int) -> Iterator[Shape]:
    """All passes of the products of one layer of each sort and of the head.

    `degree` cuts attention, MLP and head over as many ranks, and spreads the experts.
    """
    forward = list(attention_products(model, tokens, degree))
    if model.num_dense_layers:
        forward += mlp_products(model, model.intermediate_size, tokens, degree)
    if model.moe:
        forward += expert_products(model, tokens, degree)
        shared = model.moe.shared_expert_intermediate_size
        forward += mlp_products(model, shared, tokens, degree) if shared else ()
    forward.append(Shape(tokens, padded_rows(model, degree), model.hidden_size))
    for one in forward:
        yield from three_passes(one)
    if model.moe:
        yield Shape(tokens, model.moe.num_experts, model.hidden_size)


def model_shapes(request: Request, limit: Caps) -> tuple[tuple[Shape, ...], ...]:
    """Products of the request's model, most useful first: one tuple for each cut and micro batch.

    Whole layers at the smallest micro batch come first. What is too much work is left out, and so
    is what came before.
    """
    seen: set[Shape] = set()
    result = []
    for size, degree in combinations(request.micro_batch_sizes, request.tensor_parallel):
        here = products(request.model, size * request.seq_length, degree)
        new = [shape for shape in dict.fromkeys(here) if shape not in seen and shape.fits(limit)]
        new = [shape for shape in new if min(shape.m, shape.n, shape.k) > 0]
        seen.update(new)
        result.append(tuple(new))
    return tuple(result)


def passes(request: Request) -> Mapping[Shape, frozenset[Pass]]:
    """In which passes of the model each of its products occurs: some numbers are those of two."""
    found: dict[Shape, frozenset[Pass]] = {}
    for size, degree in combinations(request.micro_batch_sizes, request.tensor_parallel):
        for shape in products(request.model, size * request.seq_length, degree):
            found[shape] = found.get(shape, frozenset()) | {shape.part}
    return found


def spread_shapes(device: Device, present: Sequence[Shape], limit: Caps, count: int) -> list[Shape]:
    """Shapes whose times say most about all others, beside those measured anyway.

    Source: `most_telling`.
    """
    taken = set(present)
    rest = [shape for shape in candidates(device) if shape.fits(limit) and shape not in taken]
    return [rest[i] for i in most_telling(places(rest), places(present), count)]


def candidates(device: Device) -> Iterator[Shape]:
    """Powers of two, without the products whose time is their launch."""
    rows, columns, least = (10, 15), (8, 15), 1e9
    if device == "cpu":
        rows, columns, least = (6, 12), (6, 12), 1e7
    for m, n, k in combinations(range(*rows), range(*columns), range(*columns)):
        shape = Shape(2**m, 2**n, 2**k)
        if shape.flop >= least:
            yield shape


def places(shapes: Sequence[Shape]) -> FloatColumn:
    """Octaves of rows, columns and inner size. Source: as `costmodel.residuals`."""
    sizes = [(shape.m * shape.groups, shape.n, shape.k) for shape in shapes]
    return np.log2(np.array(sizes, dtype=np.float64).reshape(-1, 3))


def shapes(request: Request, device: Device) -> tuple[Shape, ...]:
    """All products to measure, in order of usefulness: the spread ones after the first group."""
    limit = caps(device, quick=request.quick)
    groups = model_shapes(request, limit)
    flat = [shape for group in groups for shape in group]
    count = SPREAD_QUICK if request.quick else SPREAD
    spread = spread_shapes(device, flat, limit, count)
    first, *rest = groups or ((),)
    return (*first, *spread, *(shape for group in rest for shape in group))
