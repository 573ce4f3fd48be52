"""What kind of launch an Accelerate configuration is, and what of it is wrong or not priced."""

from __future__ import annotations

from trainplan.planner.runtimes.accelerate.read_keys import PARTS, STRATEGY, VERSION, Keys
from trainplan.planner.runtimes.accelerate.write import FSDP, PARALLEL
from trainplan.planner.shell import Verdict


def kind_is_read(keys: Keys) -> bool:
    """Is it FSDP, or close to it? Else a problem."""
    kind = keys.text("distributed_type", "NO").replace("False", "NO")  # YAML: NO is false
    if kind == "DEEPSPEED":
        says = (
            "DeepSpeed under Accelerate is read from the JSON that deepspeed_config_file names, "
            "not from keys of Accelerate: write one, or give it alone"
        )
        keys.problem("distributed_type", "unread", says, "distributed_type")
        return False
    if kind not in ("FSDP", "MULTI_GPU"):
        says = f"distributed_type {kind[:40]!r} is not read: use FSDP"
        keys.problem("distributed_type", "unread", says, "distributed_type")
        return False
    if kind == "MULTI_GPU":
        says = "replicas of DistributedDataParallel are not priced: priced as FSDP2, weights kept"
        keys.problem("distributed_type", "unmodelled", says, "distributed_type")
    elif keys.count(VERSION, 1) == 1:
        if keys.has(PARALLEL):
            says = "parallelism_config needs fsdp_version 2: set it"
            keys.problem("parallelism_needs_fsdp2", "illegal", says, VERSION)
        says = "FSDP1 (fsdp_version 1, the default) is priced as FSDP2: set fsdp_version 2"
        keys.problem("fsdp_version", "unmodelled", says, VERSION)
    _check_fsdp(keys)
    return True


def _check_fsdp(keys: Keys) -> None:
    new = keys.count(VERSION, 1) == 2
    found: tuple[tuple[bool, str, Verdict, str, str], ...] = (
        (
            keys.flag(f"{FSDP}.fsdp_offload_params", default=False),
            "offload_params",
            "unmodelled",
            "weights and their states on the host are not priced: the price is without",
            f"{FSDP}.fsdp_offload_params",
        ),
        (
            keys.flag(PARTS, default=False),
            "activation_checkpointing_parts",
            "unmodelled",
            "fsdp_activation_checkpointing recomputes the parts of a layer one by one and keeps "
            "the input of each, priced as whole layers: use gradient_checkpointing of the model",
            PARTS,
        ),
        (
            new and keys.text(f"{FSDP}.fsdp_state_dict_type", "") == "LOCAL_STATE_DICT",
            "state_dict_type",
            "illegal",
            "FSDP2 has no LOCAL_STATE_DICT: use SHARDED_STATE_DICT",
            f"{FSDP}.fsdp_state_dict_type",
        ),
        (
            new and STRATEGY in keys.told,
            "sharding_strategy",
            "ignored",
            "FSDP2 reads fsdp_reshard_after_forward instead of fsdp_sharding_strategy: delete it",
            STRATEGY,
        ),
        (
            new and keys.text(f"{FSDP}.fsdp_auto_wrap_policy", "NO_WRAP").upper() == "NO_WRAP",
            "no_wrap",
            "unmodelled",
            "without fsdp_auto_wrap_policy layers are no units of their own and are gathered at "
            "once, which is not priced: set TRANSFORMER_BASED_WRAP",
            f"{FSDP}.fsdp_auto_wrap_policy",
        ),
    )
    for wrong, cause, verdict, says, key in found:
        if wrong:
            keys.problem(cause, verdict, says, key)
