"""What Megatron-Bridge stops at and Megatron-LM's own arguments do not.

Source: Megatron-LM @d98e8a64 `megatron/core/transformer/transformer_config.py`, which both run.
"""

from collections.abc import Iterator, Mapping

from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages
from trainplan.planner.shell import Problem, Word

LAYOUT = "model.pipeline_model_parallel_layout"
PP, VPP = "model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size"
SMS = ("model.moe_deepep_num_sms", "model.moe_hybridep_num_sms")
OF_BOTH = "model.moe_flex_dispatcher_num_sms"


def bridge_checks(keys: Mapping[str, Word]) -> Iterator[Problem]:
    """Problems of the keys alone."""
    yield from _virtual_stages(keys)
    counts = [keys[one] for one in SMS if keys.get(one) and keys[one].text.isdigit()]
    if len({one.text for one in counts}) > 1 and OF_BOTH not in keys:
        says = f"{' and '.join(SMS)} differ: give one number, or {OF_BOTH}"
        yield Problem("one_sm_count", "illegal", says, counts[0].place)


def _virtual_stages(keys: Mapping[str, Word]) -> Iterator[Problem]:
    """A layout says its virtual stages by itself."""
    pp, vpp, layout = (keys.get(one) for one in (PP, VPP, LAYOUT))
    if pp is None or vpp is None or layout is None or layout.text.lower() in ("null", "none", ""):
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
