"""Options for a mixture of experts."""

from collections.abc import Iterator
from itertools import groupby

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.job import Dispatcher, Job, RuntimeOptions
from trainplan.costmodel.runtimes import RuntimeTraits, is_hybrid
from trainplan.planner.launch import Argument, option, switch
from trainplan.planner.runtimes.megatron_lm import keys


def moe_arguments(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """Experts, router and dispatch; nothing for a dense model."""
    model, moe = job.model, job.model.moe
    if moe is None:
        return
    yield keys.EXPERTS(moe.num_experts)
    yield keys.EXPERT_FFN(moe.moe_intermediate_size)
    if not is_hybrid(model):  # whose pattern says it
        yield keys.EXPERT_LAYERS(layer_pattern(model.moe_layers))
    if moe.latent_size:
        yield keys.LATENT_EXPERTS(moe.latent_size)
    if moe.shared_expert_intermediate_size:
        yield from _shared_expert(moe)
    yield from _router(moe)
    if moe.expert_bias:
        # The grouped experts add their own biases and refuse the fused kernel that would.
        yield switch("model", "--no-bias-dropout-fusion")
    yield from dispatch_arguments(job, traits)


def dispatch_arguments(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """How tokens reach their experts, and what multiplies them there."""
    yield from _dispatcher(traits.experts.dispatcher)
    if job.options.moe_dispatch_dtype == "mxfp8":
        yield keys.TOKENS_THERE("mxfp8")
        yield keys.GRADIENTS_THERE("mxfp8")
        yield keys.FUSED_OPERATIONS()
    yield from _capacity(job.options)
    yield keys.GROUPED_GEMM()
    yield switch("model", "--moe-permute-fusion")


def layer_pattern(moe_layers: tuple[bool, ...]) -> str:
    """Which layers are experts, as the list expression the runtime evaluates: `([0]*3+[1]*58)`."""
    runs = [(int(kind), len(list(run))) for kind, run in groupby(moe_layers)]
    return "(" + "+".join(f"[{kind}]*{count}" for kind, count in runs) + ")"


def _dispatcher(dispatcher: Dispatcher) -> Iterator[Argument]:
    if dispatcher in ("alltoall", "allgather"):
        yield keys.DISPATCHER(dispatcher)
        return
    yield keys.DISPATCHER("flex")
    yield keys.BACKEND(dispatcher)


def _capacity(options: RuntimeOptions) -> Iterator[Argument]:
    if options.moe_capacity_factor is not None:
        yield keys.CAPACITY(options.moe_capacity_factor)
        yield keys.DROPS(options.moe_token_drop_policy or "probs")
    if options.moe_pad_to_capacity:
        yield keys.PADDED()
    if options.moe_router_padding:
        yield keys.ROUTER_PADDING()


def _shared_expert(moe: MoeSpec) -> Iterator[Argument]:
    yield keys.SHARED_EXPERT(moe.shared_expert_intermediate_size)
    if moe.shared_expert_gate:
        yield keys.SHARED_GATE()


def _router(moe: MoeSpec) -> Iterator[Argument]:
    yield keys.TOP_K(moe.num_experts_per_tok)
    yield keys.SCORES(moe.router_score_function)
    yield option("model", "--moe-router-dtype", "fp32")
    if _softmax_first(moe):
        yield keys.PRE_SOFTMAX()
    if moe.n_group and moe.topk_group and moe.n_group > 1:
        yield keys.ROUTER_GROUPS(moe.n_group)
        yield keys.TOP_GROUPS(moe.topk_group)
    if moe.routed_scaling_factor not in (None, 1.0):
        yield keys.ROUTED_SCALE(moe.routed_scaling_factor or 1.0)
    yield from _balancing(moe)


def _softmax_first(moe: MoeSpec) -> bool:
    """Are scores taken over all experts and left as they are?

    Softmax over the chosen experts equals softmax over all, renormalised. With one expert the
    renormalised score is the constant 1 and the runtime asks for the other order.
    """
    softmax = moe.router_score_function == "softmax"
    return softmax and (not moe.norm_topk_prob or moe.num_experts_per_tok == 1)


def _balancing(moe: MoeSpec) -> Iterator[Argument]:
    """Load balancing; its strengths are the user's to change.

    Source: DeepSeek-V3, arXiv:2412.19437, section 4.2 (bias speed 0.001).
    """
    if _balances_by_bias(moe):
        yield keys.ROUTER_BIAS()
        yield option("model", "--moe-router-bias-update-rate", 0.001)
        yield keys.BALANCING("seq_aux_loss")
    else:
        yield keys.BALANCING("aux_loss")
    yield keys.BALANCING_RATE(balancing_weight(moe)[0])


def balancing_weight(moe: MoeSpec) -> tuple[float, str]:
    """Weight of the loss that balances the experts, and whose it is; empty: the model's own.

    Source: DeepSeek-V3, arXiv:2412.19437, section 4.2 (sequence loss 0.0001);
    Fedus et al., Switch Transformer, arXiv:2101.03961, section 2.2 (loss 0.01).
    """
    if moe.router_aux_loss_coef is not None:
        return moe.router_aux_loss_coef, ""
    return (0.0001, "DeepSeek-V3") if _balances_by_bias(moe) else (0.01, "Switch Transformer")


def _balances_by_bias(moe: MoeSpec) -> bool:
    """Does a bias balance? That of softmax scores is of a linear layer, and is trained."""
    return moe.router_bias and moe.router_score_function == "sigmoid"
