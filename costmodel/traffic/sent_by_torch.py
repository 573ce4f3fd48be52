"""Bytes that each rank hands to others in a step under FSDP2, DTensor and torch's pipelining.

What the seconds of the estimate are made of, in whole bytes, for dense layers of attention and
MLPs; with the small sums that no estimate prices, a ring over context ranks, and weights
of more than three virtual stages, which are gathered again and again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, stage_layers
from trainplan.costmodel.memory import BlockParams, block_params
from trainplan.costmodel.model import norm_params, query_columns, value_columns
from trainplan.costmodel.program import Shape, placed
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES, program_for

Sent = Counter[tuple[str, str]]
"""(group, operation) -> bytes of the whole buffers that a rank hands over. `dp` are the ranks that
share one copy of the weights, context ranks with them; `dp_replicate` those that have the same
piece."""
LOSS_SUMS = 3
"""Maximum, sum of exponentials and logit of the label of every token. Source: PyTorch v2.13.0
`distributed/tensor/parallel/loss.py`, _log_softmax and _nll_loss_forward."""
RING_MESSAGES = 3
"""Keys and values go round a ring forward, and with their gradients backward. Source: Liu et al.,
Ring Attention, arXiv:2310.01889, section 3."""


ACTIVE_STAGES = 3
"""Virtual stages whose weights a rank has gathered. Source: PyTorch v2.13.0
`distributed/pipelining/schedules.py`, _add_unshard_reshard, max_active_stages."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A virtual stage."""

    number: int
    layers: int
    repeated: int
    """Layers that run again in the backward pass."""


def stages_of(job: Job, layout: Layout, pp_rank: int) -> tuple[Stage, ...]:
    """Virtual stages of a pipeline rank."""
    counts = stage_layers(job.model, layout)
    numbers = placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)[pp_rank]
    block = layout.recompute_num_layers if layout.recompute_method == "block" else None
    found = []
    for number in numbers.tolist():
        held = counts[number]
        again = 0 if layout.recompute != "full" else held if block is None else min(held, block)
        found.append(Stage(number, held, again))
    return tuple(found)


def times_gathered(stages: Sequence[int]) -> Counter[int]:
    """How often the weights of each virtual stage are gathered, from the stages of a rank's ops.

    Before every op there are those of the next `ACTIVE_STAGES` that will run, and no others.
    Source: PyTorch v2.13.0 `distributed/pipelining/schedules.py`, _add_unshard_reshard.
    """
    found: Counter[int] = Counter()
    active: set[int] = set()
    for place in range(len(stages)):
        soon = set(list(dict.fromkeys(stages[place:]))[:ACTIVE_STAGES])
        found.update(soon - active)
        active = soon
    return found


def torch_sent_bytes(job: Job, traits: RuntimeTraits, layout: Layout, pp_rank: int) -> Sent:
    """Bytes of a rank of a pipeline rank in a step.

    Source: derived; Korthikanti et al., arXiv:2205.05198, section 4.2.2; Rajbhandari et al.,
    arXiv:1910.02054, section 7; Zhao et al., arXiv:2304.11277; the functions below.
    """
    one = _Rank(job, layout, traits, block_params(job, LayoutTable.of([layout])))
    step: Sent = Counter()
    for stage in stages_of(job, layout, pp_rank):
        for moved in (one.tensor(stage), one.ring(stage), one.messages(stage, pp_rank)):
            step.update(moved)
        step.update(one.states(stage, one.gathers(stage, pp_rank)))
    return Counter({key: value for key, value in step.items() if value})


@dataclass(frozen=True, slots=True)
class _Rank:
    """Of one layout."""

    job: Job
    layout: Layout
    traits: RuntimeTraits
    params: BlockParams

    @property
    def microbatches(self) -> int:
        """Of a replica in a step."""
        return num_microbatches(self.job, self.layout)

    @property
    def tokens(self) -> int:
        """Of a micro batch on a rank."""
        return self.layout.micro_batch_size * self.job.training.seq_length // self.layout.cp

    @property
    def activation(self) -> int:
        """Bytes of the hidden states of all of them."""
        return self.job.training.storage_bytes * self.tokens * self.job.model.hidden_size

    @property
    def reductions(self) -> int:
        """How often gradients are reduced in a step.

        Source: `Sharding.whole_under_pipeline`; Rajbhandari et al., arXiv:1910.02054, section 7.
        """
        every = self.layout.zero_stage >= 2 and self.layout.pp == 1
        return self.microbatches if every else 1

    def tensor(self, stage: Stage) -> Sent:
        """Sums of halves of layers over tensor ranks, and of the ends.

        A layer that runs again ends before its last product. Source: arXiv:2205.05198, section
        4.2.2; `Recompute.stops_early`; torchtitan `models/llama3/parallelize.py`, apply_tp.
        """
        layout, m, tensor = self.layout, self.microbatches, self.activation
        if layout.tp == 1:
            return Counter()
        ends = self.first(stage) + self.last(stage)
        sums = m * LOSS_SUMS * BYTES_FP32 * self.tokens * self.last(stage)
        if not layout.sequence_parallel:
            halves = 4 * stage.layers + stage.repeated
            return Counter({("tp", "all_reduce"): m * tensor * (halves + ends) + sums})
        gathered = 4 * stage.layers + 2 * stage.repeated
        scattered = 4 * stage.layers + stage.repeated
        norms = 2 * stage.layers + self.last(stage)
        width = norm_params(self.job.model)
        gradients = BYTES_FP32 * norms * width * self.reductions
        return Counter(
            {
                ("tp", "all_gather"): m * tensor * (gathered + ends),
                ("tp", "reduce_scatter"): m * tensor * (scattered + ends),
                ("tp", "all_reduce"): sums + gradients,
            }
        )

    def ring(self, stage: Stage) -> Sent:
        """Keys and values of the other context ranks, as attention reads them."""
        layout, model = self.layout, self.job.model
        columns = 2 * model.num_key_value_heads * model.head_dim
        if self.traits.footprint.repeats_key_values:
            columns = query_columns(model) + value_columns(model)
        each = self.job.training.storage_bytes * self.tokens * columns // layout.tp
        passes = RING_MESSAGES * stage.layers + stage.repeated
        return Counter({("cp", "send"): self.microbatches * (layout.cp - 1) * passes * each})

    def messages(self, stage: Stage, pp_rank: int) -> Sent:
        """Hidden states to the next stage and their gradients to the one before, if elsewhere."""
        layout = self.layout
        mine = {one.number for one in stages_of(self.job, layout, pp_rank)}
        onward = not self.last(stage) and stage.number + 1 not in mine
        back = not self.first(stage) and stage.number - 1 not in mine
        cut = layout.tp if layout.sequence_parallel else 1
        sent = self.microbatches * (onward + back) * self.activation // cut
        return Counter({("pp", "send"): sent})

    def gathers(self, stage: Stage, pp_rank: int) -> int:
        """How often the weights of a stage are gathered for a pass. Source: `times_gathered`."""
        layout = self.layout
        if layout.pp == 1 or layout.vpp <= ACTIVE_STAGES:
            return self.reductions
        shape = Shape(layout.pp, layout.vpp, self.microbatches)
        program = program_for(layout.schedule, shape)
        ops = program.stage[pp_rank, : program.lengths[pp_rank]].tolist()
        return times_gathered(ops)[stage.number]

    def states(self, stage: Stage, gathers: int) -> Sent:
        """Weights that are gathered so often, and gradients that are reduced.

        Source: `Sharding`; ZeRO-3 gathers what is not in the unit of the whole in both passes.
        """
        layout, bytes_of = self.layout, self.job.training.storage_bytes
        layers = stage.layers * round(float(self.params.layers[0][0]))
        ends = self.first(stage) * round(float(self.params.embedding[0]))
        ends += self.last(stage) * round(float(self.params.head[0]))
        held, shards = layers + ends, layout.dp_shard * layout.cp
        if layout.zero_stage == 0:
            shards, replicas = layout.cp, layout.dp
        else:
            replicas = layout.dp_replicate
        gathered = gathers * held
        if layout.zero_stage == 3 and layout.pp == 1:
            gathered += self.reductions * (layers + (not self.traits.sharding.ends_at_root) * ends)
        gradients = BYTES_FP32 * held * self.reductions
        return Counter(
            {
                ("dp", "all_gather"): (shards > 1) * bytes_of * gathered,
                ("dp", "reduce_scatter"): (shards > 1) * gradients,
                ("dp_replicate", "all_reduce"): (replicas > 1) * gradients // shards,
            }
        )

    def first(self, stage: Stage) -> bool:
        """Has it the embedding?"""
        return stage.number == 0

    def last(self, stage: Stage) -> bool:
        """Has it head and loss?"""
        return stage.number == self.layout.pp * self.layout.vpp - 1
