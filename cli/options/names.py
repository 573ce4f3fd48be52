"""Names that help pages list, and nothing that must be imported for them.

Written by docs/generator/generate.py (`make docs`) from the registries: edit those, not this file.
"""

from trainplan.cli.options.plugged import with_plugins


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LARGEST_SIZE = 1073741824
DEFAULT_RUNTIME = "megatron-lm"
FIT_CHANCE = 0.8
MODELS = _names("""
deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v4-flash gemma2-27b gemma2-9b gemma3-1b gemma3-27b
glm4-9b gpt-neox-20b gpt-oss-120b gpt-oss-20b gpt2 gpt2-xl gpt3-175b gpt3-6.7b kimi-k2 llama2-13b
llama2-70b llama2-7b llama3-70b llama3-8b llama3.1-405b llama3.1-70b llama3.1-8b llama3.2-1b
llama3.2-3b megatron-1.7b megatron-1008b megatron-145.6b megatron-18.4b megatron-3.6b
megatron-310.1b megatron-39.1b megatron-529.6b megatron-7.5b megatron-76.1b mistral-7b mixtral-8x22b
mixtral-8x7b mt-nlg-530b nemotron-3-nano-30b-a3b nemotron-3-super nemotron-3-ultra olmo2-13b
olmo2-32b olmo2-7b opt-125m opt-6.7b opt-66b phi3-mini pythia-1.4b qwen2.5-1.5b qwen2.5-14b
qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-1.7b qwen3-14b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b
qwen3-4b qwen3-8b qwen3-next-80b-a3b qwen3-vl-235b-a22b qwen3-vl-30b-a3b qwen3.5-122b-a10b
qwen3.5-35b-a3b qwen3.5-397b-a17b
""")
REPOSITORIES = _names("""
deepseek-ai/DeepSeek-V2 deepseek-ai/DeepSeek-V2-Lite deepseek-ai/DeepSeek-V3
deepseek-ai/DeepSeek-V3-0324 deepseek-ai/DeepSeek-V3.1 deepseek-ai/DeepSeek-R1
deepseek-ai/DeepSeek-R1-0528 deepseek-ai/DeepSeek-R1-Zero deepseek-ai/DeepSeek-V4-Flash
google/gemma-2-27b google/gemma-2-9b google/gemma-3-1b-pt google/gemma-3-27b-pt
zai-org/GLM-4-9B-0414 THUDM/GLM-4-9B-0414 EleutherAI/gpt-neox-20b openai/gpt-oss-120b
openai/gpt-oss-20b openai-community/gpt2 openai-community/gpt2-xl moonshotai/Kimi-K2-Base
meta-llama/Llama-2-13b-hf meta-llama/Llama-2-70b-hf meta-llama/Llama-2-7b-hf
meta-llama/Meta-Llama-3-70B meta-llama/Meta-Llama-3-8B meta-llama/Llama-3.1-405B
meta-llama/Meta-Llama-3.1-405B meta-llama/Llama-3.1-70B meta-llama/Meta-Llama-3.1-70B
meta-llama/Llama-3.3-70B-Instruct meta-llama/Llama-3.1-8B meta-llama/Meta-Llama-3.1-8B
meta-llama/Llama-3.2-1B meta-llama/Llama-3.2-3B mistralai/Mistral-7B-v0.1
mistralai/Mistral-7B-Instruct-v0.1 mistralai/Mixtral-8x22B-v0.1
mistralai/Mixtral-8x22B-Instruct-v0.1 mistralai/Mixtral-8x7B-v0.1
mistralai/Mixtral-8x7B-Instruct-v0.1 nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16 nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16
allenai/OLMo-2-1124-13B allenai/OLMo-2-0325-32B allenai/OLMo-2-1124-7B facebook/opt-125m
facebook/opt-6.7b facebook/opt-66b microsoft/Phi-3-mini-4k-instruct EleutherAI/pythia-1.4b
EleutherAI/pythia-1.4b-deduped Qwen/Qwen2.5-1.5B Qwen/Qwen2-1.5B Qwen/Qwen2.5-14B Qwen/Qwen2.5-72B
Qwen/Qwen2-72B Qwen/Qwen2.5-7B Qwen/Qwen2-7B Qwen/Qwen3-0.6B Qwen/Qwen3-0.6B-Base Qwen/Qwen3-1.7B
Qwen/Qwen3-1.7B-Base Qwen/Qwen3-14B Qwen/Qwen3-14B-Base Qwen/Qwen3-235B-A22B Qwen/Qwen3-30B-A3B
Qwen/Qwen3-32B Qwen/Qwen3-4B Qwen/Qwen3-4B-Base Qwen/Qwen3-8B Qwen/Qwen3-Next-80B-A3B-Instruct
Qwen/Qwen3-Next-80B-A3B-Thinking Qwen/Qwen3-VL-235B-A22B-Instruct Qwen/Qwen3-VL-30B-A3B-Instruct
Qwen/Qwen3.5-122B-A10B Qwen/Qwen3.5-35B-A3B Qwen/Qwen3.5-397B-A17B
""")
GPUS = _names("""
a100-pcie-40gb a100-pcie-80gb a100-sxm-40gb a100-sxm-80gb a10g a6000 a800-sxm-80gb b200 b300 gaudi2
gaudi3 gb200 gb300 gh200-96gb h100-pcie h100-sxm h100-sxm-94gb h100-sxm-96gb-500w h20 h200-sxm
h800-sxm l4 l40s mi250x mi300x mi325x mi350x mi355x rtx-pro-6000-server rtx3090 rtx4090 t4
v100-pcie-32gb v100-sxm-16gb v100-sxm-32gb vr200 a100 a100-80gb a100-40gb a100-sxm a100-sxm4
a100-pcie a800 h100 h100-80gb h100-sxm5 h800 h200 h200-sxm5 gh200 b200-sxm b300-sxm mi250 mi300
rtx-4090 rtx-3090 rtx-a6000 rtx-pro-6000
""")
HOSTS = _names("""
dgx-2 dgx-a100 dgx-h100 dgx-h200 dgx-b200 p4d p5 p5en p3dn p6-b300 g5.12xlarge g5.48xlarge
g6.48xlarge g6e.48xlarge g7e.48xlarge a2-highgpu-8g a2-megagpu-16g a2-ultragpu-8g a3-highgpu-8g
a3-megagpu-8g a3-ultragpu-8g a4-highgpu-8g a4x-highgpu-4g a4x-maxgpu-4g-metal nd96asr-v4
nd96amsr-a100-v4 nd96isr-h100-v5 nd96isr-h200-v5 nd96isr-mi300x-v5 nd128isr-gb200-v6 bm.gpu4.8
bm.gpu.a100-v2.8 bm.gpu.h100.8 bm.gpu.h200.8 bm.gpu.mi300x.8
""")
MACHINES = _names("""
gb200-nvl72 gb300-nvl72 dgx-a100 dgx-h100 dgx-h200 dgx-b200 p3dn.24xlarge p4d.24xlarge p4de.24xlarge
p5.48xlarge p5e.48xlarge p5en.48xlarge p6-b200.48xlarge p6-b300.48xlarge g5.12xlarge g5.48xlarge
g6.48xlarge g6e.48xlarge g7e.48xlarge a2-highgpu-8g a2-megagpu-16g a2-ultragpu-8g a3-highgpu-8g
a3-megagpu-8g a3-ultragpu-8g a4-highgpu-8g a4x-highgpu-4g a4x-maxgpu-4g-metal Standard_ND96asr_v4
Standard_ND96amsr_A100_v4 Standard_ND96isr_H100_v5 Standard_ND96isr_H200_v5
Standard_ND96isr_MI300X_v5 Standard_ND128isr_NDR_GB200_v6 ND_GB300_v6 BM.GPU4.8 BM.GPU.A100-v2.8
BM.GPU.H100.8 BM.GPU.H200.8 BM.GPU.MI300X.8
""")
LAYOUT_FIELDS = _names("""
tp= cp= pp= dp= ep= etp= vpp= micro_batch_size= sequence_parallel=true|false zero_stage=0|1|2|3
schedule=1f1b|interleaved|zb-1p|zb-2p|gpipe|breadth-first|zb-h1|zb-h2|zb-v|v-half|v-min|dualpipe-v
recompute=none|selective|full
recompute_modules=core_attn|layernorm|mla_up_proj|mlp|moe_act|shared_experts|moe|torchtitan_selective_op|maxtext_save_qkv_proj|gdn_norm_out
recompute_method=none|uniform|block recompute_num_layers= offload.optimizer=
offload_modules=qkv_linear|core_attn|attn_proj|mlp_norm|expert_fc1|moe_act offload.tier=cpu|nvme
offload.parameters=none|cpu|nvme offload.checkpoints= offload.stride= dp_replicate= stages=even
tiled_loss=true|false tiled_mlp=true|false cp_heads= gtp= egtp= replicas_share_optimizer=true|false
hpz= shard=
""")
PRECISIONS = _names("""
bf16 fp16 fp32 tf32 fp8 mxfp8 nvfp4
""")
ALLOWED = _names("""
diloco
""")
OUTER_TYPES = _names("""
fp32 bf16 fp16 fp8 int8
""")
PACKINGS = _names("""
none greedy balanced
""")
OPTIMIZERS = with_plugins(
    "optimizers",
    _names("""
adamw adamw8bit adafactor lion sgd muon dist-muon soap shampoo galore galore8bit apollo apollo-mini
"""),
)
STATE_PRECISIONS = _names("""
o0 bf16 o1 o2 o3
""")
RUNTIMES = with_plugins(
    "runtimes",
    _names("""
megatron-lm megatron-bridge nemo megatron-deepspeed megatron-zero-bubble torchtitan accelerate
deepspeed arctic-training fsdp2 llm-foundry-fsdp fms-fsdp maxtext nanotron torch-eager transformers
zero-topo zero-offload-delayed deep-optimizer-states fuyou ssdtrain protrain patrickstar harmony
se-moe megatron-dualpipe tutel fsmoe
"""),
)
RUNTIME_OPTIONS = _names("""
attention=flash|flash2|triton|unfused dropout=true|false cross_entropy=unfused|jit|fused
compile=true|false cuda_graph=none|partial|full_iteration overlap_grad_reduce=true|false
overlap_param_gather=true|false bucket_mb=N overlap_tp_comm=true|false overlap_moe_a2a=true|false
delay_wgrad=true|false overlap_shared_experts=true|false moe_chunks=1|2|4|8
microbatch_group_size=N|least|double fp8_recipe=tensorwise|blockwise|rowwise|rowwise_with_gw_hp
moe_dispatcher=alltoall|allgather|deepep|hybridep|ncclep|hierarchical
moe_dispatch_dtype=bf16|fp8|mxfp8 deepep_proxy=uccl|nvshmem gradient_dtype=fp32|bf16 weight_bits=8
gradient_bits=4 fp8_param_gather=true|false fp8_transpose_cache=true|false
activation_func_fp8_input_store=true|false fp8_attention=true|false moment_dtype=fp32|bf16|fp16|fp8
fused_optimizer=true|false offload_activation_layers=N cp_comm_type=p2p|a2a|all_gather
fsdp_version=1|2 adapter_dtype=fp32|bf16 liger=0.5|0.6
routing=balanced|random|zipf:ALPHA|load:FACTOR|FILE moe_capacity_factor=N
moe_pad_to_capacity=true|false moe_token_drop_policy=probs|position moe_router_padding=true|false
expert_placement=order|best|worst_step
""")
SCHEDULES = with_plugins(
    "schedules",
    _names("""
1f1b interleaved zb-1p zb-2p zb-h1 zb-h2 zb-auto zb-v v-half v-min dualpipe-v hanayo gpipe
breadth-first grouped-interleaved 2bp chimera dualpipe seq-1f1b vocab-1f1b vocab-1f1b-2
"""),
)
OBJECTIVES = _names("""
time memory cost energy gpus context
""")
SAVES = _names("""
sync async local
""")
LEVELS = _names("""
safe all none
""")
SAVED = _names("""
as-launched reshardable weights
""")
TAKEN = _names("""
best after anew batch fewer alone
""")
KNOBS = _names("""
gpus global_batch_size seq_length nic gpu precision memory_gib
""")
EXPORTERS = with_plugins(
    "exporters",
    _names("""
megatron-lm megatron-bridge megatron-zero-bubble torchtitan deepspeed arctic-training accelerate
fsdp2 transformers
"""),
)
CHECKOUTS = _names("""
megatron-lm megatron-bridge megatron-zero-bubble torchtitan deepspeed arctic-training accelerate
""")
TRAINERS = _names("""
llama-factory axolotl ms-swift trl verl slime nemo-rl
""")
KEY_TABLES = _names("""
ms-swift verl nemo-rl llama-factory primus flagscale
""")
LAUNCHERS = with_plugins(
    "launchers",
    _names("""
torchrun torchrun-c10d slurm mpi kubernetes pytorchjob skypilot
"""),
)
MEASUREMENTS = _names("""
memory layer gemm attention embedding head optimizer stream collectives p2p overlap links copies
cpu_adam drive offloaded_step power
""")
MEASURED_OPTIMIZERS = _names("""
adamw adamw8bit adafactor lion sgd muon
""")
LAYER_RUNTIMES = _names("""
torch-eager megatron-lm
""")
LAUNCH_KINDS = _names("""
slurm torchrun
""")
PROFILE_FORMATS = with_plugins(
    "importers",
    _names("""
nccl-tests
"""),
)
DOCUMENTS = _names("""
plan infeasible offers pareto estimate explain why-not compare replan sweep check files tune-event
tuned-plan validate verify-event schedule schedules simulate catalog calibration profile cluster
model run machine search-request estimate-request check-request explain-request why-not-request
compare-request sweep-request replan-request export-request report-request catalog-request
schema-request
""")
