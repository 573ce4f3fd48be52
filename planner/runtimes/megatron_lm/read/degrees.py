"""What the runtime's validator stops at in degrees, batches and the pipeline, in its order.

Source: Megatron-LM `megatron/training/arguments.py`, validate_args.
"""

from math import prod

from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, needs
from trainplan.planner.runtimes.megatron_lm.read.layout import inner_ranks, weight_shards
from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages

EACH = "num_layers_per_virtual_pipeline_stage"
SPLITS = (EACH, keys.VPP, keys.STAGES)
ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def dealt_layers(f: Facts) -> int:
    """Layers with those that embedding and loss stand for."""
    return f.layers + sum(f.on(name) for name in ACCOUNTED)


def _shards(f: Facts) -> bool:
    ranks = ((keys.WEIGHT_SHARDS, f.tp), (keys.EXPERT_SHARDS, f.etp))
    pairs = ((f.arguments.whole(key), each) for key, each in ranks)
    return any(shards is not None and (shards < n or shards % n != 0) for shards, n in pairs)


def _world(f: Facts) -> str:
    inner = inner_ranks(f.arguments) * weight_shards(f.arguments)[0]
    return f"{inner} and {f.world} ranks" if f.world and f.world % inner else ""


def _hierarchy(f: Facts) -> bool:
    sizes = f.arguments.integers(keys.NESTED_SIZES)
    return prod(sizes) != f.cp if sizes else "a2a+p2p" in f.arguments.texts(keys.EXCHANGE)


def _batch(f: Facts) -> str:
    """Evaluation batches are those of training unless given."""
    micro, whole = f.count(keys.MICRO_BATCH), f.count(keys.BATCH)
    sizes = (
        (micro, whole),
        (f.count("eval_micro_batch_size") or micro, f.count("eval_global_batch_size") or whole),
    )
    for each, every in sizes if f.dp else ():
        if each > 0 and every and every % (each * (f.dp or 1)):
            return f"{every}, {each} and dp = {f.dp}"
    return ""


def _layers(f: Facts) -> bool:
    uneven = f.given(*ENDS, keys.VPP, keys.STAGES)
    return not uneven and dealt_layers(f) % f.pp != 0


def _layers_of_virtual_stages(f: Facts) -> bool:
    each, (of_rank, rest) = f.count(EACH), divmod(dealt_layers(f), f.pp)
    return each > 0 and not rest and of_rank % each != 0


def _stages(f: Facts) -> bool:
    try:
        return (
            bool(f.text(keys.STAGES)) and len(layout_stages(f.text(keys.STAGES)).text) % f.pp != 0
        )
    except ValueError:
        return False


DEGREE_CHECKS: tuple[Check | str, ...] = (
    Check(
        "weight_shards",
        _shards,
        f"{keys.WEIGHT_SHARDS.flag} must be a multiple of tp, and {keys.EXPERT_SHARDS.flag} of etp",
    ),
    Check(
        "degrees_divide_world",
        _world,
        "tp * pp * cp must divide the number of ranks: change a degree or the number of GPUs",
        keys.TP,
    ),
    Check(
        "hierarchical_sizes",
        _hierarchy,
        "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes with cp as product",
        keys.EXCHANGE,
    ),
    Check(
        "bad_value",
        lambda f: any(
            f.given(dest) and f.count(dest) < 1 for dest in (keys.MICRO_BATCH, keys.BATCH)
        ),
        "batch sizes are above 0: correct them",
        keys.MICRO_BATCH,
    ),
    Check(
        "micro_batch_divides_batch",
        _batch,
        "the global batch must be a multiple of micro batch * dp, in training and evaluation: "
        "change one of them",
        keys.BATCH,
    ),
    needs(
        "mtp_needs_rope",
        keys.PREDICTIONS,
        *(f"position_embedding_type={n}" for n in ("rope", "none")),
    ),
    Check(
        "one_pipeline_split",
        lambda f: sum(f.given(name) for name in SPLITS) > 1,
        "virtual stages are given twice: keep one of --num-layers-per-virtual-pipeline-stage, "
        f"--num-virtual-stages-per-pipeline-rank and {keys.STAGES.flag}",
        EACH,
    ),
    Check(
        "stages_fill_pipeline",
        _stages,
        f"the stages of {keys.STAGES.flag} must be a multiple of pp: correct it",
        keys.STAGES,
    ),
    Check(
        "first_last_need_stages_per_rank",
        lambda f: f.given(EACH) and f.given(*ENDS),
        "uneven ends take --num-virtual-stages-per-pipeline-rank, not the layers of each stage",
        EACH,
    ),
    Check(
        "pp_divides_layers",
        _layers,
        "pp must divide the layers, embedding and loss counted where stated: change pp, or give "
        f"{keys.STAGES.flag}",
        keys.PP,
    ),
    Check(
        "virtual_stages_divide_layers",
        _layers_of_virtual_stages,
        "the layers of a rank must be a multiple of those of a virtual stage: change either",
        EACH,
    ),
    "vpp_needs_pp",
    Check(
        "virtual_stages_need_overlap",
        lambda f: f.vpp > 1 and f.pp == 2 and not f.on("overlap_p2p_comm"),
        "with --no-overlap-p2p-communication virtual stages need pp above 2: take it out",
        "overlap_p2p_comm",
    ),
)
