"""Model FLOPs of one step: weights that a token meets, and what compares or carries tokens."""

from collections.abc import Callable
from functools import partial

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec, trains_head
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.lengths import real_tokens_per_step, span_share
from trainplan.costmodel.model.adapters import matrices
from trainplan.costmodel.model.params import MIXER_COUNTS, router_choices
from trainplan.costmodel.towers import tower_flop_per_step


def layer_matrix_params_per_token(model: ModelSpec) -> float:
    """Weights that one token is multiplied with in a layer of a model with one kind."""
    moe = model.moe
    rows = moe.rows_per_token if moe else 1
    met = sum(one.size * (rows if one.experts else 1) for one in matrices(model))
    return met + (model.hidden_size * router_choices(moe) if moe else 0)


def matrix_params_per_token(model: ModelSpec) -> float:
    """Weights one token is multiplied with, all layers, head and MTP modules; no embedding."""
    h, each = model.hidden_size, [layer_matrix_params_per_token(kind) for kind in model.kinds]
    head = h * model.vocab_size
    module = sum(each[kind] for kind in model.kinds_of_module) + 2 * h * h + head
    layers = sum(each[kind] for kind in model.kind_of_layer)
    return layers + head + model.num_nextn_predict_layers * module


def mixer_flop_per_token(
    model: ModelSpec, seq_length: int, share: Callable[[ModelSpec], float] = lambda _: 1.0
) -> float:
    """Forward FLOPs for one token of what compares or carries tokens, all layers, causal.

    `share` is that of a kind of layer which is not masked away. Source: `MIXER_COUNTS`.
    """
    each = [
        MIXER_COUNTS[kind.mixer].core_flop(kind, seq_length) * share(kind) for kind in model.kinds
    ]
    module = sum(each[kind] for kind in model.kinds_of_module)
    layers = sum(each[kind] for kind in model.kind_of_layer)
    return layers + model.num_nextn_predict_layers * module


def _kept_share(training: TrainingSpec, model: ModelSpec) -> float:
    """Tokens that a token sees in rows of several sequences, over those in rows of one.

    Source: `span_share`; a state that is carried costs each token the same.
    """
    if not training.lengths or model.mixer not in ATTENTIONS:
        return 1.0
    windowed = float(model.mixer == "sliding_attention")
    return span_share(training, windowed, model.sliding_window or 0)


def model_flop_per_step(job: Job) -> float:
    """Forward and backward FLOPs of one optimizer step; padding and masked scores count none.

    Source: 2 FLOPs a weight and token forward, twice that backward; Narayanan et al. as above.
    Where not every weight is trained: `trained_flop_per_token`. The output projection counts for
    tokens of the loss alone.
    """
    model, training = job.model, job.training
    share, unread = partial(_kept_share, training), 1 - training.loss_tokens
    unread *= model.hidden_size * model.vocab_size
    if model.trained is not None:
        whole = trained_flop_per_token(model, training.seq_length, share)
        forward = (whole - unread * 2.0 * (2 + trains_head(model))) / 3.0
    else:
        mixers = mixer_flop_per_token(model, training.seq_length, share)
        forward = 2 * (matrix_params_per_token(model) - unread) + mixers
    return 3.0 * forward * real_tokens_per_step(training) + tower_flop_per_step(job)


def trained_flop_per_token(
    model: ModelSpec, seq_length: int, share: Callable[[ModelSpec], float] = lambda _: 1.0
) -> float:
    """FLOPs for one token of a model of which not every weight is trained; adapters left out.

    A frozen matrix has no product for its own gradient, a layer that no gradient reaches runs
    forward alone.
    Source: 2 FLOPs a weight and token for each of up to three products; `MIXER_COUNTS`.
    """
    each = []
    for kind in model.kinds:
        trained = kind.trained
        passes = 1 + (trained is None or trained.passes_gradient)
        products = 2.0 * layer_matrix_params_per_token(kind) * (passes + (trained is None))
        core = MIXER_COUNTS[kind.mixer].core_flop(kind, seq_length) * share(kind)
        each.append(products + core * (1 + 2 * (passes - 1)))
    h = model.hidden_size
    head = 2.0 * (2 + trains_head(model)) * h * model.vocab_size
    module = sum(each[kind] for kind in model.kinds_of_module)
    module += 4.0 * (2 + trains_head(model)) * h * h + head
    layers = sum(each[kind] for kind in model.kind_of_layer)
    return layers + head + model.num_nextn_predict_layers * module
