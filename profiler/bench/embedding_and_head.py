"""The embedding, and the final norm, output projection and loss."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.profiles import EndPoint, Point
from trainplan.profiler.bench.inputs.shapes import FP32_BYTES, Caps, caps, padded_rows
from trainplan.profiler.bench.inputs.tensors import check_finite, task, tensors, working_precision
from trainplan.profiler.bench.layers.modules import Linear, Weights, hidden_norm
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

End = Literal["embedding", "head"]
FEWEST_TOKENS = 32
"""Below, a product is a few rows and says nothing of one with thousands."""


def head_tokens(model: ModelSpec, tp: int, tokens: int, limit: Caps) -> int:
    """Tokens at which the head is little enough work: halved until they are; 0 if never."""
    rows = padded_rows(model, tp)
    if rows * model.hidden_size * FP32_BYTES > limit.tensor_bytes:
        return 0
    while tokens >= FEWEST_TOKENS:
        flop, logits = 2.0 * tokens * rows * model.hidden_size, FP32_BYTES * tokens * rows
        if flop <= limit.layer_flop and logits <= limit.tensor_bytes:
            return tokens
        tokens //= 2
    return 0


def embedding_tokens(model: ModelSpec, tp: int, tokens: int, limit: Caps) -> int:
    """All tokens, or 0 where the table is too large."""
    table = padded_rows(model, tp) * model.hidden_size * FP32_BYTES
    return tokens if table <= limit.tensor_bytes else 0


def end_tasks(kind: End, request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each micro batch and share of the vocabulary."""
    limit, model = caps(place.device, quick=request.quick), request.model
    count, run = (head_tokens, _head) if kind == "head" else (embedding_tokens, _embedding)
    seen = set()
    for size, tp in product(request.micro_batch_sizes, request.tensor_parallel):
        tokens = count(model, tp, size * request.seq_length, limit)
        rows = padded_rows(model, tp)
        if tokens and (tokens, rows) not in seen:
            seen.add((tokens, rows))
            key = f"tokens={tokens} vocab={rows} hidden={model.hidden_size}"
            yield task(place, key, partial(run, request, place, tokens, rows))


def _embedding(
    request: Request, place: Place, tokens: int, rows: int, clock: Clock
) -> Iterator[Point]:
    """Rows of the table; the gradient of the whole table, as torch has it without `sparse`."""
    precision = working_precision(request, place)
    make = tensors(place, precision)
    table, ids = make.weight(rows, request.model.hidden_size), make.integers(rows, tokens)
    forward = partial(torch.nn.functional.embedding, ids, table)
    result = forward()
    gradient = make.normal(*result.shape)
    backward = partial(torch.autograd.grad, result, [table], gradient, retain_graph=True)
    yield EndPoint(
        kind="embedding",
        tokens=tokens,
        hidden_size=request.model.hidden_size,
        vocab_size=rows,
        precision=precision,
        forward=clock.time(forward),
        backward=clock.time(backward),
    )


def _head(request: Request, place: Place, tokens: int, rows: int, clock: Clock) -> Iterator[Point]:
    """Cross entropy on fp32 logits of this rank's rows."""
    model, precision = request.model, working_precision(request, place)
    make = tensors(place, precision)
    weights = Weights(make, [])
    norm, projection = hidden_norm(weights, model), Linear(weights, model.hidden_size, rows)
    x, labels = make.normal(tokens, model.hidden_size).requires_grad_(), make.integers(rows, tokens)
    one = torch.ones((), device=make.device)

    def forward() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(projection(norm(x)).float(), labels)

    loss = forward()
    check_finite(loss, f"loss of {tokens} tokens and {rows} words")
    wanted = [x, *weights.made]
    backward = partial(torch.autograd.grad, loss, wanted, one, retain_graph=True)
    yield EndPoint(
        kind="head",
        tokens=tokens,
        hidden_size=model.hidden_size,
        vocab_size=rows,
        precision=precision,
        forward=clock.time(forward),
        backward=clock.time(backward),
    )


EMBEDDING = Item("embedding", "token embedding", partial(end_tasks, "embedding"), 1.2)
HEAD = Item("head", "final norm, output projection and loss", partial(end_tasks, "head"), 1.2)
