"""A tower as layers that the cost model knows: models of one kind of layer, and their jobs."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.architecture import ModelSpec, TowerSpec
from trainplan.costmodel.base import Identical
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.towers import spans


@dataclass(frozen=True, slots=True)
class TowerLayers:
    """Some layers of a tower that are alike, as a model of one kind of layer."""

    model: ModelSpec
    count: int
    length: int
    """Patches that see each other: those of a window, or of a sample with its class tokens."""
    sequences: int
    """Of so many patches, in a sequence of the decoder; the last window of a sample is padded."""

    def job(self, job: Job) -> Job:
        """The job with this model, whose sequences are what its layers attend in."""
        training = job.training.model_copy(
            update={
                "seq_length": self.length,
                "global_batch_size": job.training.global_batch_size * self.sequences,
                **{"lengths": None, "packing": "none"},  # those of the decoder's rows
            }
        )
        return job.model_copy(update={"model": self.model, "training": training})


@lru_cache(maxsize=64)
def layer_model(tower: TowerSpec) -> ModelSpec:
    """A layer of the tower as a model of its own: attention without a mask, then a plain MLP."""
    heads, norm = tower.num_attention_heads, tower.qk_norm
    return ModelSpec(
        name="tower",
        num_hidden_layers=tower.num_hidden_layers,
        hidden_size=tower.hidden_size,
        intermediate_size=tower.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=tower.dims_per_head,
        vocab_size=1,
        max_position_embeddings=tower.patches_per_sample + tower.class_tokens,
        position_embedding=tower.position_embedding,
        norm=tower.norm,
        activation=tower.activation,
        gated_mlp=tower.gated_mlp,
        qkv_bias=tower.qkv_bias,
        attention_output_bias=tower.attention_output_bias,
        mlp_bias=tower.mlp_bias,
        qk_norm=norm,
        mixer="bidirectional_attention",
        feed_forward="mlp",
    )


def tower_layers(tower: TowerSpec) -> tuple[TowerLayers, ...]:
    """Windowed layers and those that see a whole sample, as far as the tower has them."""
    model, samples = layer_model(tower), tower.samples_per_sequence
    length = tower.patches_per_sample + tower.class_tokens
    return tuple(
        TowerLayers(model, count, span, samples * -(-length // span))
        for count, span in spans(tower)
    )


def tower_ranks(tower: TowerSpec, table: LayoutTable) -> IntColumn:
    """Tensor ranks that the matrices of a tower are cut over. Source: as `blocks.tower`."""
    return table.tp if tower.tensor_parallel else np.ones_like(table.tp)


def tower_rows(candidates: Candidates, kind: TowerLayers) -> Candidates:
    """The layouts as some layers of the tower meet them: nothing of a sequence is cut."""
    table, tower = candidates.table, candidates.job.model.tower
    assert tower is not None
    one = np.ones_like(table.tp)
    rows = table.replaced(
        tp=tower_ranks(tower, table),
        cp=one,
        ep=one,
        etp=one,
        sequence_parallel=np.zeros_like(table.sequence_parallel),
        micro_batch_size=table.micro_batch_size * kind.sequences,
    )
    return replace(candidates, job=_job_of(Identical(candidates.job), kind), table=rows)


@lru_cache(maxsize=64)
def _job_of(key: Identical[Job], kind: TowerLayers) -> Job:
    """One and the same object for one job, as answers are remembered by identity."""
    return kind.job(key.of)
