"""What a tower holds, and the FLOPs of its products."""

from collections.abc import Iterable

from trainplan.costmodel.architecture import LinearSpec, TowerSpec
from trainplan.costmodel.job import Job


def spans(tower: TowerSpec) -> tuple[tuple[int, int], ...]:
    """How many layers see how many patches: those of a window, and those of a whole sample.

    A sample has its class tokens beside its patches.
    """
    length, windowed = tower.patches_per_sample + tower.class_tokens, tower.num_windowed_layers
    window = min(tower.window_patches or length, length)
    kinds = (windowed, window), (tower.num_hidden_layers - windowed, length)
    return tuple(kind for kind in kinds if kind[0])


def layer_weights(tower: TowerSpec) -> int:
    """Weights of the matrices of one layer: four of the attention, two or three of the MLP.

    Source: Dosovitskiy et al., arXiv:2010.11929, section 3.1.
    """
    heads, ups = tower.num_attention_heads * tower.dims_per_head, 2 if tower.gated_mlp else 1
    return tower.hidden_size * (4 * heads + (ups + 1) * tower.intermediate_size)


def tower_layer_params(tower: TowerSpec) -> int:
    """One layer: its matrices with their biases, two norms, norms of queries and keys, factors.

    Source: the implementation in transformers of each family that is read
    (tests/oracles/test_tower_parameters.py).
    """
    heads, h = tower.num_attention_heads * tower.dims_per_head, tower.hidden_size
    ups = 2 if tower.gated_mlp else 1
    biases = tower.qkv_bias * (3 if tower.key_bias else 2) * heads
    biases += tower.attention_output_bias * h + tower.mlp_bias * (ups * tower.intermediate_size + h)
    normed = {"none": 0, "head": 2 * tower.dims_per_head, "full": 2 * heads}[tower.qk_norm]
    scale = 2 * h if tower.layer_scale else 0
    return layer_weights(tower) + biases + normed + scale + 2 * norm_params(tower)


def norm_params(tower: TowerSpec) -> int:
    """Of one norm over the hidden size."""
    return tower.hidden_size * (2 if tower.norm == "layernorm" else 1)


def encoder_outside_params(tower: TowerSpec) -> int:
    """Of the encoder outside its layers: what makes patches, positions, class tokens, norms."""
    rows = tower.position_rows + tower.class_tokens
    norms = tower.norms_outside * norm_params(tower)
    made = sum(one.parameters for one in tower.embeddings)
    return made + rows * tower.hidden_size + norms + tower.extra_parameters


def projector_params(tower: TowerSpec) -> int:
    """All projectors."""
    return sum(one.parameters for one in tower.projectors)


def encoder_params(tower: TowerSpec) -> int:
    """The tower without its projectors."""
    return tower.num_hidden_layers * tower_layer_params(tower) + encoder_outside_params(tower)


def tower_params(tower: TowerSpec) -> int:
    """The whole tower."""
    return encoder_params(tower) + projector_params(tower)


def _weights(linears: Iterable[LinearSpec]) -> int:
    """Multiplications of one row through all of them."""
    return sum(one.rows * one.in_features * one.out_features for one in linears)


def encoder_forward_flop(tower: TowerSpec) -> float:
    """FLOPs of the products of one sample through the encoder, forward.

    Source: 2 FLOPs a weight and patch (Narayanan et al., arXiv:2104.04473, appendix); attention
    over whole windows or samples, without a mask.
    """
    total = 2.0 * tower.patches_per_sample * _weights(tower.embeddings)
    patches = tower.patches_per_sample + tower.class_tokens
    heads = tower.num_attention_heads * tower.dims_per_head
    for count, span in spans(tower):
        each = 2.0 * layer_weights(tower) + 4.0 * span * heads
        total += count * patches * each
    return total


def projector_forward_flop(tower: TowerSpec) -> float:
    """FLOPs of the products of one sample through the projectors, forward. Source: as above."""
    linears = (linear for one in tower.projectors for linear in one.linears)
    return 2.0 * tower.tokens_per_sample * _weights(linears)


def tower_flop_per_step(job: Job) -> float:
    """Forward and backward FLOPs of the tower in one optimizer step; frozen parts run forward only.

    Source: as `model_flop_per_step`; nothing flows back through what is frozen, and pixels have no
    gradient, so of the embedding only that of its weights is made.
    """
    tower = job.model.tower
    if tower is None:
        return 0.0
    samples = job.training.global_batch_size * tower.samples_per_sequence
    encoder, projector = encoder_forward_flop(tower), projector_forward_flop(tower)
    made = 2.0 * tower.patches_per_sample * _weights(tower.embeddings)
    encoder = encoder if tower.frozen != "none" else 3 * encoder - made
    return samples * (encoder + (1 if tower.frozen == "all" else 3) * projector)
