"""Options of Megatron-LM that the exporter writes and the reader reads, each with its group.

Source: NVIDIA/Megatron-LM, commit `write.COMMIT`, `megatron/training/arguments.py` and
`megatron/core/transformer/transformer_config.py`. Types, choices and defaults of all options of the
release are in `options.json`.
"""

from typing import Self

from trainplan.planner.launch import Argument, Group, Value, option


class Key(str):
    """One option: written by a call with its values, read under its name in the runtime's code."""

    __slots__ = ("flag", "group")
    flag: str
    group: Group

    def __new__(cls, group: Group, flag: str, name: str = "") -> Self:
        """As `argparse` names it, where the runtime gives it no `name` of its own."""
        key = super().__new__(cls, name or flag.removeprefix("--").replace("-", "_"))
        key.flag, key.group = flag, group
        return key

    def __call__(self, *values: Value | float) -> Argument:
        """The option with its values; a switch has none."""
        return option(self.group, self.flag, *values)

    def off(self) -> Argument:
        """What switches off that which is on by default."""
        return self()


# Degrees, recomputation
TP = Key("layout", "--tensor-model-parallel-size")
SEQUENCE_PARALLEL = Key("layout", "--sequence-parallel")
PP = Key("layout", "--pipeline-model-parallel-size")
STAGES = Key("layout", "--pipeline-model-parallel-layout")
VPP = Key("layout", "--num-virtual-stages-per-pipeline-rank")
GROUP = Key(
    "layout",
    "--microbatch-group-size-per-virtual-pipeline-stage",
    "microbatch_group_size_per_vp_stage",
)
LAYER_PATTERN = Key("layout", "--hybrid-layer-pattern")
CP = Key("layout", "--context-parallel-size")
EXCHANGE = Key("layout", "--cp-comm-type")
NESTED_SIZES = Key("layout", "--hierarchical-context-parallel-sizes")
EP = Key("layout", "--expert-model-parallel-size")
ETP = Key("layout", "--expert-tensor-parallel-size")
WEIGHT_SHARDS = Key("layout", "--tensor-parallel-num-weight-shards")
EXPERT_SHARDS = Key("layout", "--expert-tensor-parallel-num-weight-shards")
MICRO_BATCH = Key("layout", "--micro-batch-size")
TP_OVERLAP = Key("layout", "--tp-comm-overlap")
EXPERT_OVERLAP = Key("layout", "--overlap-moe-expert-parallel-comm")
DELAYED_WEIGHTS = Key("layout", "--delay-wgrad-compute")
SHARED_OVERLAP = Key("layout", "--moe-shared-expert-overlap")
RECOMPUTE = Key("recompute", "--recompute-granularity")
RECOMPUTED_MODULES = Key("recompute", "--recompute-modules")
RECOMPUTE_METHOD = Key("recompute", "--recompute-method")
RECOMPUTED_LAYERS = Key("recompute", "--recompute-num-layers")
# Sharding, offload, optimizer
DISTRIBUTED = Key("optimizer", "--use-distributed-optimizer")
FSDP = Key("optimizer", "--use-megatron-fsdp")
FSDP_STRATEGY = Key("optimizer", "--data-parallel-sharding-strategy")
OUTER_STRATEGY = Key("optimizer", "--outer-dp-sharding-strategy")
ON_META = Key("optimizer", "--init-model-with-meta-device")
CHECKPOINTS = Key("optimizer", "--ckpt-format")
FSDP_GRADIENTS = Key("optimizer", "--megatron-fsdp-main-grads-dtype")
REPLICAS = Key("optimizer", "--num-distributed-optimizer-instances")
GRADIENT_OVERLAP = Key("optimizer", "--overlap-grad-reduce")
BUCKET = Key("optimizer", "--ddp-bucket-size")
GATHER_OVERLAP = Key("optimizer", "--overlap-param-gather")
OFFLOADS = Key("optimizer", "--fine-grained-activation-offloading")
OFFLOADED_MODULES = Key("optimizer", "--offload-modules")
IN_FLIGHT = Key("optimizer", "--fine-grained-offloading-max-inflight-offloads")
PRECISION_AWARE = Key("optimizer", "--use-precision-aware-optimizer")
CPU_OPTIMIZER = Key("optimizer", "--optimizer-cpu-offload")
CPU_FRACTION = Key("optimizer", "--optimizer-offload-fraction")
CPU_OVERLAP = Key("optimizer", "--overlap-cpu-optimizer-d2h-h2d")
HOST_LAYERS = Key("optimizer", "--cpu-offloading-num-layers")
BATCH = Key("optimizer", "--global-batch-size")
STEPS = Key("optimizer", "--train-iters")
OPTIMIZER = Key("optimizer", "--optimizer")
LR = Key("optimizer", "--lr")
MIN_LR = Key("optimizer", "--min-lr")
WEIGHT_DECAY = Key("optimizer", "--weight-decay")
# Number formats
BF16 = Key("precision", "--bf16")
FP16 = Key("precision", "--fp16")
WHOLE_SUMS = Key("precision", "--accumulate-allreduce-grads-in-fp32")
NARROW_SUMS = Key("precision", "--grad-reduce-in-bf16")
FP8 = Key("precision", "--fp8-format", "fp8")
FP8_RECIPE = Key("precision", "--fp8-recipe")
FP8_GATHER = Key("precision", "--fp8-param-gather")
FP4 = Key("precision", "--fp4-format", "fp4")
FP4_RECIPE = Key("precision", "--fp4-recipe")
FP4_GATHER = Key("precision", "--fp4-param-gather")
REUSED_BUFFER = Key("precision", "--reuse-grad-buf-for-mxfp8-param-ag")
FIRST_MOMENT = Key("precision", "--exp-avg-dtype")
SECOND_MOMENT = Key("precision", "--exp-avg-sq-dtype")
# Data
TOKENIZER = Key("data", "--tokenizer-type")
DATA = Key("data", "--data-path")
SAVE = Key("data", "--save")
SAVE_INTERVAL = Key("data", "--save-interval")
# Shape
SPEC = Key("model", "--spec")
LAYERS = Key("model", "--num-layers")
HIDDEN = Key("model", "--hidden-size")
FFN = Key("model", "--ffn-hidden-size")
HEADS = Key("model", "--num-attention-heads")
LENGTH = Key("model", "--seq-length")
MAX_POSITIONS = Key("model", "--max-position-embeddings")
VOCABULARY = Key("model", "--vocab-size")
NORM = Key("model", "--normalization")
EPSILON = Key("model", "--norm-epsilon", "layernorm_epsilon")
SWIGLU = Key("model", "--swiglu")
QUICK_GEGLU = Key("model", "--quick-geglu")
CLAMP = Key("model", "--activation-func-clamp-value")
SQUARED_RELU = Key("model", "--squared-relu")
GELU_FUSION = Key("model", "--no-bias-gelu-fusion", "bias_gelu_fusion")
BIASES = Key("model", "--disable-bias-linear", "add_bias_linear")
QKV_BIAS = Key("model", "--add-qkv-bias")
UNTIED = Key("model", "--untie-embeddings-and-output-weights")
PREDICTIONS = Key("model", "--mtp-num-layers")
HIDDEN_DROPOUT = Key("model", "--hidden-dropout")
ATTENTION_DROPOUT = Key("model", "--attention-dropout")
# Attention and positions
CHANNELS = Key("model", "--kv-channels")
GROUPED = Key("model", "--group-query-attention")
GROUPS = Key("model", "--num-query-groups")
QK_NORM = Key("model", "--qk-layernorm")
SOFTMAX = Key("model", "--softmax-type")
WINDOW = Key("model", "--window-size")
WINDOW_SKIPS = Key("model", "--window-attn-skip-freq")
LATENT = Key("model", "--multi-latent-attention")
Q_RANK = Key("model", "--q-lora-rank")
KV_RANK = Key("model", "--kv-lora-rank")
QK_CHANNELS = Key("model", "--qk-head-dim")
ROTARY_CHANNELS = Key("model", "--qk-pos-emb-head-dim")
V_CHANNELS = Key("model", "--v-head-dim")
VARIANT = Key("model", "--experimental-attention-variant")
POSITIONS = Key("model", "--position-embedding-type")
ROTARY_BASE = Key("model", "--rotary-base")
ROTARY_PERCENT = Key("model", "--rotary-percent")
INTERPOLATION = Key("model", "--rotary-seq-len-interpolation-factor")
LLAMA_SCALING = Key("model", "--use-rope-scaling")
LLAMA_FACTOR = Key("model", "--rope-scaling-factor")
ROPE_TYPE = Key("model", "--rope-type")
YARN_FACTOR = Key("model", "--rotary-scaling-factor")
YARN_LENGTH = Key("model", "--yarn-original-max-position-embeddings")
YARN_FAST = Key("model", "--yarn-beta-fast")
YARN_SLOW = Key("model", "--yarn-beta-slow")
YARN_ROUNDED = Key(
    "model", "--no-yarn-correction-range-round-to-int", "yarn_correction_range_round_to_int"
)
MSCALE = Key("model", "--mscale")
MSCALE_ALL = Key("model", "--mscale-all-dim")
# Experts
EXPERTS = Key("model", "--num-experts")
EXPERT_FFN = Key("model", "--moe-ffn-hidden-size")
EXPERT_LAYERS = Key("model", "--moe-layer-freq")
LATENT_EXPERTS = Key("model", "--moe-latent-size")
SHARED_EXPERT = Key("model", "--moe-shared-expert-intermediate-size")
SHARED_GATE = Key("model", "--moe-shared-expert-gate")
TOP_K = Key("model", "--moe-router-topk")
SCORES = Key("model", "--moe-router-score-function")
PRE_SOFTMAX = Key("model", "--moe-router-pre-softmax")
ROUTER_GROUPS = Key("model", "--moe-router-num-groups")
TOP_GROUPS = Key("model", "--moe-router-group-topk")
ROUTED_SCALE = Key("model", "--moe-router-topk-scaling-factor")
ROUTER_BIAS = Key("model", "--moe-router-enable-expert-bias")
BALANCING = Key("model", "--moe-router-load-balancing-type")
BALANCING_RATE = Key("model", "--moe-aux-loss-coeff")
GROUPED_GEMM = Key("model", "--moe-grouped-gemm")
DISPATCHER = Key("model", "--moe-token-dispatcher-type")
BACKEND = Key("model", "--moe-flex-dispatcher-backend")
TOKENS_THERE = Key("model", "--moe-dispatch-fwd-dtype")
GRADIENTS_THERE = Key("model", "--moe-combine-bwd-dtype")
FUSED_OPERATIONS = Key("model", "--use-transformer-engine-op-fuser")
CAPACITY = Key("model", "--moe-expert-capacity-factor")
PADDED = Key("model", "--moe-pad-expert-input-to-capacity")
DROPS = Key("model", "--moe-token-drop-policy")
ROUTER_PADDING = Key("model", "--moe-router-padding-for-quantization")
# Kernels and graphs
ATTENTION = Key("model", "--attention-backend")
LOSS_FUSION = Key("model", "--cross-entropy-loss-fusion")
LOSS_KERNEL = Key("model", "--cross-entropy-fusion-impl")
GRAPH = Key("model", "--cuda-graph-impl")
GRAPH_MODULES = Key("model", "--cuda-graph-modules")
LOSS_CHECK = Key("model", "--no-check-for-nan-in-loss-and-grad", "check_for_nan_in_loss_and_grad")
