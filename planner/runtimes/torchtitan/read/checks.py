"""Rules of the runtime that a config breaks.

Sources: torchtitan/trainer.py, distributed/parallel_dims.py and models/common/decoder.py.
"""

from trainplan.costmodel.architecture import ModelSpec
from trainplan.planner.runtimes.keys import Name
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.config import Config
from trainplan.planner.runtimes.torchtitan.read.degrees import Degrees


def check_features(config: Config, degrees: Degrees, model: ModelSpec) -> None:
    """Features that exclude one another."""
    graphs = not config.of(key.NO_GRAPHS)
    spmd = config.of(key.SPMD)
    pairs: dict[str, tuple[bool, str, tuple[Name, ...]]] = {
        "tied_pipeline": (
            model.tie_word_embeddings and degrees.pp > 1,
            "a tied embedding does not run with a pipeline: set the degree to 1",
            (key.PP,),
        ),
        "predictions_pipeline": (
            model.num_nextn_predict_layers > 0 and max(degrees.pp, degrees.cp) > 1,
            "multi-token prediction runs with neither pipeline nor context parallelism: set both "
            "to 1",
            (key.PP,),
        ),
        "graphs_pipeline": (
            graphs and degrees.pp > 1,
            "CUDA graphs, which are on by default, do not run with a pipeline: set "
            "training.disable_cuda_graphs",
            (key.NO_GRAPHS, key.PP),
        ),
        "graphs_experts": (
            graphs and degrees.ep > 1 and model.moe is not None,
            "CUDA graphs, which are on by default, do not run with this dispatcher of experts: set "
            "training.disable_cuda_graphs",
            (key.NO_GRAPHS, key.EP),
        ),
        "context_backend": (
            degrees.cp > 1 and spmd != "spmd_types",
            "context parallelism needs parallelism.spmd_backend = spmd_types: set it",
            (key.SPMD, key.CP),
        ),
        "async_tp_compile": (
            config.of(key.ASYNC_TP) and not config.of(key.COMPILE),
            "compile.enable_async_tensor_parallel needs compile.enable: set it",
            (key.ASYNC_TP, key.COMPILE),
        ),
    }
    for cause, (wrong, says, options) in pairs.items():
        if wrong:
            config.stops(cause, says, *options)
    if degrees.ep > 1 and model.moe is None:
        config.problem(
            "ep_needs_experts", "ignored", "a dense model has no experts: delete it", key.EP
        )


def check_ranks(config: Config, degrees: Degrees, model: ModelSpec) -> None:
    """What stops the runtime before it builds a model."""
    if degrees.shard * degrees.cp * degrees.tp % degrees.ep:
        says = f"ep = {degrees.ep} must divide dp_shard * cp * tp: lower it"
        config.stops("experts_fold_into_ranks", says, key.EP, key.TP, key.CP, key.SHARD)
    heads = model.num_attention_heads if model.mla else model.num_key_value_heads
    if model.num_attention_heads % degrees.tp or heads % degrees.tp:
        says = (
            f"tp = {degrees.tp} must divide the {model.num_attention_heads} heads and the {heads}"
        )
        config.stops("tp_divides_heads", f"{says} of keys and values: lower it", key.TP)
    if model.moe and model.moe.num_experts % degrees.ep:
        says = f"ep = {degrees.ep} must divide the {model.moe.num_experts} experts: lower it"
        config.stops("ep_divides_experts", says, key.EP)
    if config.degree(key.LENGTH) > model.max_position_embeddings:
        says = f"{key.LENGTH} exceeds the {model.max_position_embeddings} positions: lower it"
        config.stops("positions_hold_sequence", says, key.LENGTH)
    pieces = degrees.tp if config.of(key.SEQUENCE) else 1
    pieces *= 2 * degrees.cp if degrees.cp > 1 else 1
    if config.degree(key.TOKENS) % pieces:
        says = f"the tokens of a micro batch must be a multiple of {pieces}, tp * 2 cp: change one"
        config.stops("sequence_parallel_divides_sequence", says, key.TOKENS, key.TP, key.CP)
