"""What Megatron-Bridge stops at and Megatron-LM's own arguments do not.

Source: Megatron-LM @d98e8a64 `megatron/core/transformer/transformer_config.py`, which both run.
"""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.architecture import ModelSpec
from trainplan.planner.runtimes.megatron_bridge.read_keys import NOTHING
from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages
from trainplan.planner.shell import Problem, Word

LAYOUT = "model.pipeline_model_parallel_layout"
PP, VPP = "model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size"
SMS = ("model.moe_deepep_num_sms", "model.moe_hybridep_num_sms")
OF_BOTH = "model.moe_flex_dispatcher_num_sms"


FIRST, LAST = "model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage"
COUNTED = ("embedding", "loss")


def bridge_checks(keys: Mapping[str, Word], model: ModelSpec | None) -> Iterator[Problem]:
    """Problems of the keys, and of the layers of the model."""
    yield from _virtual_stages(keys)
    yield from _weight_shards(keys)
    if model is not None and not any(is_set(keys.get(one)) for one in (FIRST, LAST, LAYOUT)):
        yield from _layers(keys, model)
    counts = [keys[one] for one in SMS if keys.get(one) and keys[one].text.isdigit()]
    if len({one.text for one in counts}) > 1 and OF_BOTH not in keys:
        says = f"{' and '.join(SMS)} differ: give one number, or {OF_BOTH}"
        yield Problem("one_sm_count", "illegal", says, counts[0].place)


SHARDS = (
    *("model.tensor_parallel_num_weight_shards", "model.gtp_weight_remat_size"),
    *("model.expert_tensor_parallel_num_weight_shards", "model.expert_gtp_weight_remat_size"),
)


def _weight_shards(keys: Mapping[str, Word]) -> Iterator[Problem]:
    """Weights cut beyond tensor parallelism need groups, which Megatron-LM alone makes.

    Source: Megatron-Bridge @067f987d `training/initialize.py:805`, initialize_model_parallel
    without gtp_remat_size.
    """
    for name in SHARDS:
        word = keys.get(name)
        if word is not None and is_set(word) and word.text != "1":
            says = (
                f"{name} has no groups in this release, which leaves gtp_remat_size out: priced as "
                "cut by tp alone; Megatron-LM itself cuts further"
            )
            yield Problem(f"unmodelled_{name}", "unmodelled", says, word.place)


def is_set(word: Word | None) -> bool:
    """Is there a value?"""
    return word is not None and word.text.lower() not in NOTHING


def _layers(keys: Mapping[str, Word], model: ModelSpec) -> Iterator[Problem]:
    """Layers are dealt evenly, or stages are spelled out; layers of several kinds have their own.

    Source: Megatron-LM @d98e8a64 `megatron/core/transformer/transformer_block.py`,
    get_num_layers_to_build.
    """
    pp, vpp = (_whole(keys.get(one)) for one in (PP, VPP))
    hybrid = "model.hybrid_layer_pattern" in keys or any(kind.ssm for kind in model.kinds)
    if pp is None or pp == 1 or hybrid:
        return
    layers = _whole(keys.get("model.num_layers")) or model.num_hidden_layers
    counted = (keys.get(f"model.account_for_{one}_in_pipeline_split") for one in COUNTED)
    of_rank, rest = divmod(layers + sum(is_set(w) and w.text == "true" for w in counted if w), pp)
    if rest:
        says = f"{layers} layers do not divide over {PP} = {pp}: change it, or give {LAYOUT}"
        yield Problem("pp_divides_layers", "illegal", says, keys[PP].place)
    elif vpp and of_rank % vpp:
        says = f"the {of_rank} layers of a rank do not divide over {VPP} = {vpp}: change it"
        yield Problem("virtual_stages_divide_layers", "illegal", says, keys[VPP].place)


def _whole(word: Word | None) -> int | None:
    return int(word.text) if word is not None and word.text.isdigit() else None


def _virtual_stages(keys: Mapping[str, Word]) -> Iterator[Problem]:
    """A layout says its virtual stages by itself."""
    pp, vpp, layout = (keys.get(one) for one in (PP, VPP, LAYOUT))
    if pp is None or vpp is None or layout is None or not is_set(layout):
        return
    try:
        stages = len(layout_stages(layout.text.strip("\"'")).text)
        of_rank = stages / int(pp.text)
    except (ValueError, ZeroDivisionError):
        return
    if vpp.text.isdigit() and int(vpp.text) != of_rank:
        says = (
            f"{VPP} = {vpp.text} and the {stages} stages of {LAYOUT} on {pp.text} ranks differ: "
            f"leave {VPP} out"
        )
        yield Problem("one_pipeline_split", "illegal", says, vpp.place)
