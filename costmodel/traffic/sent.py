"""Bytes that each rank of a layout hands to others in a step, by group and operation.

What the seconds of the estimate are made of, in whole bytes, for layers of attention, MLPs and
experts as Megatron Core runs them; with the small sums that no estimate prices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, stage_layers
from trainplan.costmodel.shards import gathered_weights, table_weights, wire_bytes

Sent = Counter[tuple[str, str]]
"""(group, operation) -> bytes of the whole buffers that a rank hands over."""
COUNT_BYTES = 8
"""A number of tokens. Source: Megatron Core `moe/token_dispatcher.py`, counts are int64."""
LOSS_SUMS = 3
"""Maximum, logit of the label and sum of exponentials of every token. Source: Megatron Core
`tensor_parallel/cross_entropy.py`, three all-reduces of the forward pass."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A virtual stage."""

    moe_layers: tuple[bool, ...]
    """Its layers, in order: is each a mixture of experts?"""
    first: bool
    last: bool
    repeated: int
    """Leading layers whose whole forward pass is repeated."""


def stages_of(job: Job, layout: Layout, pp_rank: int) -> tuple[Stage, ...]:
    """Virtual stages of a pipeline rank; they go round the ranks."""
    number = layout.pp * layout.vpp
    counts = stage_layers(job.model, layout)
    found = []
    for one in range(pp_rank, number, layout.pp):
        start = sum(counts[:one])
        held = job.model.moe_layers[start : start + counts[one]]
        repeated = 0
        if layout.recompute == "full":
            repeated = len(held)
            if layout.recompute_method == "block":
                repeated = min(repeated, layout.recompute_num_layers or 0)
        found.append(Stage(held, first=one == 0, last=one == number - 1, repeated=repeated))
    return tuple(found)


def sent_bytes(job: Job, layout: Layout, pp_rank: int, params: Mapping[str, float]) -> Sent:
    """Bytes of one rank of a pipeline rank in a step; of exchanges of experts the mean.

    Args:
        job: A model of attention, MLPs and experts; what context parallelism itself exchanges is
            not counted.
        layout: ZeRO-0 or ZeRO-1, one pipeline.
        pp_rank: Place in the pipeline.
        params: Parameters of the rank: `dp` those replicated over it, `expert dp` the others.

    Source: derived; Korthikanti et al., arXiv:2205.05198, section 4.2.2; Rajbhandari et al.,
    arXiv:1910.02054, section 7; the functions below.
    """
    one = _Passes(job, layout)
    step: Sent = Counter()
    for stage in stages_of(job, layout, pp_rank):
        for count, moved in _of_stage(one, stage):
            for key, value in moved.items():
                step[key] += count * value
        step.update(one.norm_gradients(stage))
    if job.model.tie_word_embeddings and layout.pp > 1 and pp_rank in (0, layout.pp - 1):
        rows = job.model.vocab_size // layout.tp
        step["ends", "all_reduce"] += BYTES_FP32 * rows * job.model.hidden_size
    step.update(_states(layout, params))
    return Counter({key: value for key, value in step.items() if value})


def _of_stage(one: _Passes, stage: Stage) -> list[tuple[int, Sent]]:
    """(how often, what) of all passes of a stage."""
    m = one.microbatches
    found = []
    for number, moe in enumerate(stage.moe_layers):
        again = number < stage.repeated
        found.append((m, one.matrices(moe=moe, passes=3 if again else 2)))
        found.append((m * (2 if again else 1), one.layer_forward(moe=moe)))
        found.append((m, one.layer_backward(moe=moe)))
        if not again:
            found.append((m, one.repeated_modules(moe=moe)))
    if stage.first:
        found.append((m, one.embedding() + one.end_matrix(passes=1)))
    else:
        found.append((m, one.message()))
    found.append((m, one.head() + one.end_matrix(passes=2) if stage.last else one.message()))
    return found


@dataclass(frozen=True, slots=True)
class _Passes:
    """What is handed over in the passes of one micro batch."""

    job: Job
    layout: Layout

    @property
    def model(self) -> ModelSpec:
        """Of the job."""
        return self.job.model

    @property
    def microbatches(self) -> int:
        """Of a replica in a step."""
        return num_microbatches(self.job, self.layout)

    @property
    def tokens(self) -> int:
        """Of a micro batch, on one context rank."""
        whole = self.layout.micro_batch_size * self.job.training.seq_length
        return whole // self.layout.cp

    @property
    def activation(self) -> int:
        """Bytes of the hidden states of all of them."""
        return self.job.training.storage_bytes * self.tokens * self.model.hidden_size

    @property
    def sequence_parallel(self) -> bool:
        """Is the residual stream cut over the tensor ranks?"""
        return self.layout.sequence_parallel and self.layout.tp > 1

    def column_and_row(self) -> tuple[Sent, Sent]:
        """Forward and backward of a product cut by columns and one cut by rows behind it.

        Source: arXiv:2205.05198, section 4.2.2; the input is gathered again for its weights'
        gradient.
        """
        if self.layout.tp == 1:
            return Counter(), Counter()
        tensor = self.activation
        if not self.sequence_parallel:
            both: Sent = Counter({("tp", "all_reduce"): tensor})
            return both, both
        gather, scatter = ("tp", "all_gather"), ("tp", "reduce_scatter")
        return Counter({gather: tensor, scatter: tensor}), Counter(
            {gather: 2 * tensor, scatter: tensor}
        )

    def layer_forward(self, *, moe: bool) -> Sent:
        """Attention, then an MLP or experts."""
        attention, _ = self.column_and_row()
        return attention + self.feed_forward(moe=moe)[0]

    def layer_backward(self, *, moe: bool) -> Sent:
        """As above."""
        _, attention = self.column_and_row()
        return attention + self.feed_forward(moe=moe)[1]

    def feed_forward(self, *, moe: bool) -> tuple[Sent, Sent]:
        """The second half of a layer."""
        if not moe:
            return self.column_and_row()
        forward, backward = self.dispatch()
        if self.model.moe and self.model.moe.shared_expert_intermediate_size:
            shared = self.column_and_row()
            forward, backward = forward + shared[0], backward + shared[1]
        return forward + self.routing(), backward

    def dispatch(self) -> tuple[Sent, Sent]:
        """Rows to their experts and back, with their routing weights on the way out.

        Source: Megatron Core `moe/token_dispatcher.py`, MoEAlltoAllTokenDispatcher.
        """
        moe, layout = self.model.moe, self.layout
        assert moe is not None, "the layer has experts"
        storage = self.job.training.storage_bytes
        rows = self.tokens // (layout.tp if self.sequence_parallel else 1)
        rows *= moe.num_experts_per_tok
        there, back = rows * (storage * self.model.hidden_size), rows * BYTES_FP32
        exchange: Sent = Counter()
        if layout.ep > 1:
            exchange["ep", "all_to_all"] = 2 * there + back
        forward, backward = exchange.copy(), exchange.copy()
        if layout.etp > 1:
            gather, scatter = ("etp", "all_gather"), ("etp", "reduce_scatter")
            out, home = layout.etp * (there + back), layout.etp * there
            forward.update({gather: out, scatter: home})
            backward.update({gather: home, scatter: out})
        return forward, backward

    def routing(self) -> Sent:
        """How many tokens go to each expert, exchanged in the forward pass alone.

        Source: Megatron Core `moe/token_dispatcher.py`, preprocess.
        """
        moe, layout = self.model.moe, self.layout
        assert moe is not None, "the layer has experts"
        found: Sent = Counter()
        ranks = layout.ep * layout.etp
        if ranks > 1:
            found["etp ep", "all_gather"] = COUNT_BYTES * moe.num_experts * ranks
        return found

    def repeated_modules(self, *, moe: bool) -> Sent:
        """Forward passes of modules that selective recomputation repeats."""
        chosen = set(self.layout.recompute_modules)
        if moe and "moe" in chosen:
            return self.feed_forward(moe=True)[0]
        if moe and "shared_experts" in chosen:
            return self.column_and_row()[0]
        if not moe and "mlp" in chosen:
            return self.column_and_row()[0]
        return Counter()

    def matrices(self, *, moe: bool, passes: int) -> Sent:
        """Weights of a layer that `gtp` and `egtp` cut, gathered in so many passes, and gradients.

        Source: `costmodel.shards.by_matrix`.
        """
        table = LayoutTable.of([self.layout])
        kinds = (kind for kind in self.model.kinds if (kind.feed_forward == "moe") == moe)
        kind, found = next(kinds, self.model), Counter[tuple[str, str]]()
        for one in gathered_weights(kind):
            group = "egtp" if one.experts else "gtp"
            if one.parts(table)[0] > 1:
                selected = self.layout.recompute == "selective" and one.repeated(table)[0]
                read = wire_bytes(self.job) * (passes + bool(selected))
                found += _gathered(group, int(one.elements(kind, table)[0]), read)
        return found

    def end_matrix(self, *, passes: int) -> Sent:
        """Token table, which the forward pass alone reads, or output projection: in 16 bits.

        Source: as `costmodel.traffic.by_matrix`.
        """
        if self.layout.gtp == 1:
            return Counter()
        weights = table_weights(self.model, LayoutTable.of([self.layout]))[0]
        return _gathered("gtp", int(weights), self.job.training.storage_bytes * passes)

    def embedding(self) -> Sent:
        """The rows of all parts of the vocabulary are summed; learned positions are added whole."""
        if self.layout.tp == 1:
            return Counter()
        if not self.sequence_parallel:
            return Counter({("tp", "all_reduce"): self.activation})
        summed = "all_reduce" if self.model.position_embedding == "learned" else "reduce_scatter"
        return Counter({("tp", summed): self.activation, ("tp", "all_gather"): self.activation})

    def head(self) -> Sent:
        """Projection and loss."""
        if self.layout.tp == 1:
            return Counter()
        sums: Sent = Counter({("tp", "all_reduce"): LOSS_SUMS * BYTES_FP32 * self.tokens})
        if not self.sequence_parallel:
            return sums + Counter({("tp", "all_reduce"): self.activation})
        gathered = {("tp", "all_gather"): 2 * self.activation}
        return sums + Counter({**gathered, ("tp", "reduce_scatter"): self.activation})

    def message(self) -> Sent:
        """Hidden states, or their gradients, to a neighbour in the pipeline."""
        cut = self.layout.tp if self.sequence_parallel else 1
        return Counter({("pp", "send"): self.activation // cut})

    def norm_gradients(self, stage: Stage) -> Sent:
        """Once a step: gradients of what every tensor rank has whole and sees a part of.

        Source: Megatron Core `distributed/finalize_model_grads.py`,
        _allreduce_non_tensor_model_parallel_grads; `moe/shared_experts.py`, gate_weight.
        """
        if self.layout.tp == 1:
            return Counter()
        model, moe = self.model, self.model.moe
        weights = 2 if model.norm == "layernorm" else 1
        heads = 2 * weights * model.head_dim * (model.qk_norm == "head")
        count = len(stage.moe_layers) * heads  # whole, and each rank norms heads of its own
        if self.sequence_parallel:
            norm = weights * model.hidden_size
            biases = model.hidden_size * (model.attention_output_bias + model.mlp_bias)
            count += len(stage.moe_layers) * (2 * norm + biases) + stage.last * norm
            router = (moe.num_experts + moe.shared_expert_gate) * model.hidden_size if moe else 0
            count += sum(stage.moe_layers) * router
        return Counter({("tp", "all_reduce"): BYTES_FP32 * count})


def _gathered(group: str, elements: int, read: float) -> Sent:
    """Weights of which each is so many bytes in all passes, and their gradients."""
    gathered = round(read * elements)
    return Counter(
        {(group, "all_gather"): gathered, (group, "reduce_scatter"): BYTES_FP32 * elements}
    )


def _states(layout: Layout, params: Mapping[str, float]) -> Sent:
    """Gradients and updated weights over the replicas, both in fp32 as `plan verify` trains.

    Source: arXiv:1910.02054, section 7.
    """
    experts = layout.tp * layout.dp // (layout.etp * layout.ep * layout.egtp)
    ranks = {"dp": layout.dp // layout.gtp, "expert dp": experts}
    alike = layout.etp == layout.tp and layout.gtp == layout.egtp
    if layout.ep == 1 and alike:  # experts are cut, and reduced, as all else
        params = {"dp": sum(params.values())}
    found: Sent = Counter()
    for group, count in params.items():
        if ranks[group] == 1:
            continue
        held = BYTES_FP32 * round(count)
        if layout.zero_stage == 0:
            found[group, "all_reduce"] += held
        else:
            shards = ranks[group] // layout.dp_replicate
            found[group, "reduce_scatter"] += held * (shards > 1)
            found[group, "all_gather"] += held * (shards > 1)
            if layout.dp_replicate > 1:
                found["copies", "all_reduce"] += held // shards
    return found
