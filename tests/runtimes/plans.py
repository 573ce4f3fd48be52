"""Twenty plans or more for every runtime that a launch is written for: fixed, and all unlike."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.families.bridges import bridge_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec, stage_specs
from trainplan.costmodel.presets.presets import preset, preset_config

SP = {"sequence_parallel": True}
INTERLEAVED = SP | {"schedule": "interleaved"}
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
BLOCK = FULL | {"recompute_method": "block", "recompute_num_layers": 4}
BY_OPERATION = {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)}
Z1, Z2, Z3 = ({"zero_stage": stage} for stage in (1, 2, 3))
H100, H200, B200 = "h100-sxm", "h200-sxm", "b200"


@dataclass(frozen=True)
class Plan:
    """One job without its runtime, and one layout."""

    name: str
    model: str
    """A preset, or an architecture of `bridge_configs.json`."""
    cluster: str
    training: dict
    layout: Layout
    options: dict
    outer: OuterSpec | None = None

    def job(self, runtime: str) -> Job:
        return Job(
            model=self.spec(),
            training=TrainingSpec(**self.training),
            cluster=parse_cluster(self.cluster),
            runtime=runtime,
            options=RuntimeOptions(**self.options),
            outer=self.outer,
        )

    def spec(self):
        own = bridge_configs().get(self.model)
        return preset(self.model) if own is None else model_from_config(own, self.model)

    def config(self):
        """What stands in the folder of the model, by Hugging Face's names."""
        own = bridge_configs().get(self.model)
        if own is None:
            own = {k: v for k, v in preset_config(self.model).items() if not k.startswith("_")}
            if bridge := bridge_of(self.spec()):
                own["architectures"] = [bridge.architecture]
        return own


@cache
def bridge_configs():
    """A configuration of every architecture that Megatron-Bridge builds."""
    path = Path(__file__).parent / "bridge_configs.json"
    return json.loads(path.read_text("utf-8"))


def plan(name, model, nodes, layout, *, gpu=H100, seq=4096, batch=64, precision="bf16", **options):
    training = {"seq_length": seq, "global_batch_size": batch, "precision": precision}
    return Plan(name, model, f"{nodes}x8:{gpu}", training, Layout(**layout), options)


def joined(name, model, layout, **outer):
    """A plan of islands that outer steps join."""
    spec = OuterSpec(**{"every": 100, "gb_per_s": 0.125} | outer)
    return replace(plan(name, model, 1, layout), outer=spec)


def recompute(*modules):
    return {"recompute": "selective", "recompute_modules": modules}


MEGATRON = (
    plan("tp", "llama3-8b", 1, {"tp": 2, "dp": 4, **SP}, seq=8192),
    plan("pp", "llama3-70b", 8, {"tp": 4, "pp": 4, "dp": 4, **SP}),
    plan("vpp", "llama3-70b", 8, {"tp": 4, "pp": 4, "dp": 4, "vpp": 5, **INTERLEAVED}),
    plan(
        "cp", "llama3.1-405b", 64, {"tp": 8, "pp": 8, "cp": 2, "dp": 4, "vpp": 8, **INTERLEAVED},
        seq=8192, batch=256,
    ),
    plan(
        "uneven stages", "llama3-70b", 8,
        {"tp": 4, "pp": 4, "dp": 4, "stages": stage_specs((19, 21, 21, 19)), **SP},
    ),
    plan("fp8", "llama3-70b", 8, {"tp": 4, "pp": 4, "dp": 4, **SP}, precision="fp8"),
    plan("mxfp8", "llama3-8b", 1, {"dp": 8}, gpu=B200, precision="mxfp8"),
    plan("fp16", "llama2-7b", 1, {"tp": 2, "dp": 4, **SP}, precision="fp16"),
    plan("fsdp", "llama3-8b", 2, {"dp": 16, **Z3}),
    plan("hsdp", "llama3-8b", 2, {"dp": 16, "dp_replicate": 2, **Z2}),
    plan(
        "hfsdp", "llama3-8b", 2,
        {"dp": 16, "dp_replicate": 2, "replicas_share_optimizer": True, **Z3},
    ),
    plan("unsharded", "gpt3-6.7b", 1, {"tp": 2, "dp": 4, "zero_stage": 0, **SP}, seq=2048),
    plan("offloaded optimizer", "llama3-8b", 1, {"dp": 8, "offload": OffloadSpec(optimizer=0.5)}),
    plan(
        "offloaded activations", "llama3-8b", 1,
        {"tp": 2, "dp": 4, "offload_modules": ("qkv_linear", "core_attn", "attn_proj"), **SP},
    ),
    plan("full recomputation", "llama3-70b", 4, {"tp": 8, "pp": 2, "dp": 2, **SP, **FULL}),
    plan(
        "selective recomputation", "qwen2.5-72b", 8,
        {"tp": 4, "pp": 4, "dp": 4, **SP, **recompute("core_attn", "mlp")},
    ),
    plan("ep", "mixtral-8x7b", 4, {"tp": 2, "pp": 2, "dp": 8, "ep": 8, **SP}, batch=128),
    plan(
        "deepep", "qwen3-30b-a3b", 4,
        {"pp": 2, "dp": 16, "vpp": 4, "ep": 16, "schedule": "interleaved"},
        batch=256, moe_dispatcher="deepep", overlap_moe_a2a=True, moment_dtype="bf16",
    ),
    plan(
        "tensor-local experts", "qwen3-30b-a3b", 1, {"tp": 4, "dp": 2, "ep": 4, **SP},
        moe_dispatcher="allgather",
    ),
    plan("NCCL's exchange", "qwen3-30b-a3b", 2, {"dp": 16, "ep": 16}, moe_dispatcher="ncclep"),
    plan(
        "partial graphs", "qwen3-235b-a22b", 16,
        {"tp": 2, "pp": 8, "dp": 8, "ep": 16, "stages": stage_specs((11, *[12] * 6, 11)), **SP},
        batch=256, cuda_graph="partial",
    ),
    plan(
        "mla", "deepseek-v3", 16, {"tp": 2, "pp": 4, "dp": 16, "ep": 16, "vpp": 2, **INTERLEAVED},
        batch=512,
    ),
    plan(
        "mla in fp8", "deepseek-v3", 16,
        {"pp": 8, "dp": 16, "ep": 16, **recompute("mla_up_proj", "moe_act")},
        batch=512, precision="fp8",
    ),
)  # fmt: skip

NARROW_TOKENS = plan(
    "tokens in 8 bits", "qwen3-30b-a3b", 2, {"dp": 16, "ep": 16}, gpu=B200,
    precision="mxfp8", moe_dispatcher="ncclep", moe_dispatch_dtype="mxfp8",
)  # fmt: skip
"""Megatron-Bridge @067f987d is on a Megatron Core that has no such option."""


def zero_bubble(model, nodes, precision, schedule, *, vpp=1, pp=4, tp=2, **layout):
    dp = 8 * nodes // (tp * pp)
    degrees = {"tp": tp, "pp": pp, "dp": dp, "vpp": vpp, "schedule": schedule}
    name = " ".join((model, precision, schedule, layout.get("recompute", ""))).strip()
    layout = Layout(**degrees, **SP, **layout)
    training = {"seq_length": 2048, "global_batch_size": 256, "precision": precision}
    return Plan(name, model, f"{nodes}x8:{H100}", training, layout, {})


SCHEDULES = {
    "1f1b": 1, "interleaved": 2, "zb-1p": 1, "zb-2p": 1, "zb-v": 2, "v-half": 2, "v-min": 2,
}  # fmt: skip
ZERO_BUBBLE = (
    *(zero_bubble("llama2-7b", 2, "fp16", name, vpp=vpp) for name, vpp in SCHEDULES.items()),
    *(zero_bubble("llama2-7b", 2, "bf16", name, vpp=vpp) for name, vpp in SCHEDULES.items()),
    zero_bubble("llama3-70b", 8, "fp16", "zb-2p", pp=8, tp=4),
    zero_bubble("llama3-70b", 8, "bf16", "v-half", vpp=2, pp=8, tp=4),
    zero_bubble("llama2-70b", 16, "fp16", "zb-v", vpp=2, pp=8, tp=8),
    zero_bubble("llama2-13b", 2, "fp16", "zb-1p"),
    zero_bubble("llama2-13b", 2, "bf16", "1f1b", **FULL),
    zero_bubble("llama2-13b", 2, "bf16", "1f1b", **recompute("core_attn")),
)

NO_PLAN = frozenset(
    {
        *("DeciLMForCausalLM", "KimiK3ForConditionalGeneration"),  # read by no family
        *("Qwen3ASRForConditionalGeneration", "Qwen3_5ForTokenClassification"),
        "FalconH1ForCausalLM",
    }
)
"""Architectures that Megatron-Bridge builds and no plan is of; which ones, and why, is what
tests/unit/planner/runtimes/test_bridged_models.py says."""


def bridged(name):
    """A plan of an architecture, over a pipeline where its bridge has one."""
    model = model_from_config(bridge_configs()[name], name)
    bridge = bridge_of(model)
    dense = bridge.dense_ones if model.moe is None else ()
    pp = 1 if "pp" in dense else 2
    ep = {"ep": 4} if model.moe else {}
    layout = {"tp": 2, "pp": pp, "dp": 8 // pp, **ep, **SP}
    return plan(name, name, 2, layout, seq=4096)


BRIDGED = tuple(bridged(name) for name in bridge_configs() if name not in NO_PLAN)

WAVE = {"pp": 4, "vpp": 2, "dp": 2, **Z1}
BUCKETS = plan("buckets", "llama3-8b", 1, {"dp": 8}, bucket_mb=400)
CUT = (
    plan("weights cut beyond tp", "llama3-8b", 2, {"tp": 2, "dp": 8, "gtp": 4, **SP}),
    plan(
        "experts cut beyond etp",
        "mixtral-8x7b",
        4,
        {"pp": 2, "dp": 16, "ep": 4, "gtp": 8, "egtp": 2},
    ),
)
FLAT = {"pp": 4, "dp": 2, **Z1}
TORCHTITAN = (
    plan("fsdp", "llama3.1-8b", 1, {"dp": 8, **Z3, **BY_OPERATION}),
    plan("zero-2", "llama3-8b", 1, {"dp": 8, **Z2}),
    plan("hsdp", "llama3-8b", 2, {"tp": 2, "dp": 8, "dp_replicate": 2, **Z3, **SP, **FULL}),
    plan("unsharded", "llama3-8b", 1, {"dp": 8, "zero_stage": 0}),
    plan("pp", "llama3.1-70b", 8, {"tp": 8, "pp": 2, "dp": 4, **Z1, **SP, **FULL}),
    plan(
        "vpp", "llama3.1-70b", 8,
        {"tp": 4, "pp": 4, "vpp": 2, "dp": 4, **Z1, **INTERLEAVED, **BY_OPERATION},
    ),
    plan(
        "fp8", "llama3.1-405b", 64,
        {"tp": 8, "pp": 8, "vpp": 2, "dp": 8, **Z1, **INTERLEAVED, **FULL},
        batch=256, precision="fp8",
    ),
    plan("mxfp8", "qwen3-32b", 2, {"tp": 4, "pp": 2, "dp": 2, **Z1, **SP, **FULL},
         gpu=B200, precision="mxfp8", compile=True),
    plan("zb-h2", "llama2-7b", 1, FLAT | {"schedule": "zb-h2"}),
    plan("v-half", "llama2-7b", 1, WAVE | {"schedule": "v-half"}),
    plan("zb-v", "llama2-7b", 1, WAVE | {"schedule": "zb-v"}),
    plan("uneven stages", "llama2-13b", 1, FLAT | {"stages": stage_specs((9, 11, 11, 9))}),
    plan("every fourth layer", "llama2-7b", 1,
         {"pp": 2, "vpp": 2, "dp": 4, "schedule": "zb-h1", **Z1, **BLOCK}),
    plan("graph", "llama3.2-1b", 1, {"dp": 8, **Z3}, cuda_graph="full_iteration"),
    plan("ep", "qwen3-30b-a3b", 2, {"dp": 16, "ep": 8, **Z3, **FULL}),
    plan("etp", "qwen3-30b-a3b", 2, {"tp": 2, "dp": 8, "etp": 2, **Z3, **SP, **FULL}),
    plan("ep and pp", "mixtral-8x7b", 4, {"tp": 2, "pp": 4, "dp": 4, "ep": 8, **Z1, **SP}),
    plan("mla", "deepseek-v2-lite", 2, {"pp": 2, "dp": 8, "ep": 8, **Z1, **FULL}),
    plan("attention sinks", "gpt-oss-20b", 1, {"dp": 8, "ep": 4, **Z3, **FULL}),
    plan("cp", "llama3-8b", 1, {"dp": 2, "cp": 4, **Z3, **BY_OPERATION}),
    plan("weights on the host", "llama3-8b", 1,
         {"dp": 8, "offload": OffloadSpec(optimizer=1.0, parameters="cpu"), **Z3}),
    joined("islands", "llama3.1-8b", {"tp": 2, "pp": 2, "dp": 2, **Z1, **SP}, islands=2),
    joined("fragments", "llama3-8b", {"dp": 8, **Z3}, islands=4, fragments=5, overlap=3,
           dtype="fp8"),
)  # fmt: skip

LLAMA, QWEN, MIXTRAL = "llama3.1-8b", "qwen3-8b", "mixtral-8x7b"
ULYSSES = {"cp_comm_type": "a2a"}
DEEPSPEED = (
    plan("zero-1", LLAMA, 1, {"dp": 8, **Z1}),
    plan("zero-2", LLAMA, 1, {"dp": 8, **Z2}),
    plan("zero-3", LLAMA, 1, {"dp": 8, **Z3}),
    plan("unsharded", "llama3.2-1b", 1, {"dp": 8, "zero_stage": 0}, overlap_grad_reduce=False),
    plan("two nodes", LLAMA, 2, {"dp": 16, **Z3}),
    plan("eight nodes", "llama3.1-70b", 8, {"dp": 64, **Z3, **FULL}),
    plan("full recomputation", LLAMA, 1, {"dp": 8, **Z2, **FULL}),
    plan("larger micro batch", LLAMA, 1, {"dp": 8, "micro_batch_size": 4, **Z3, **FULL}),
    plan("offloaded", LLAMA, 1, {"dp": 8, "offload": OffloadSpec(optimizer=1.0), **Z2}),
    plan("partly offloaded", LLAMA, 1, {"dp": 8, "offload": OffloadSpec(optimizer=0.34), **Z3}),
    plan("autotp", LLAMA, 1, {"tp": 2, "dp": 4, **Z1}),
    plan("autotp over 8", "llama3.1-70b", 2, {"tp": 8, "dp": 2, **Z2, **FULL}),
    plan("ulysses", LLAMA, 1, {"cp": 2, "dp": 4, **Z3}, seq=8192, **ULYSSES),
    plan("ulysses over 8", LLAMA, 2, {"cp": 8, "dp": 2, **Z3, **FULL}, seq=8192, **ULYSSES),
    plan("fp16", "llama2-7b", 1, {"dp": 8, **Z2}, precision="fp16"),
    plan("tf32", "llama3.2-1b", 1, {"dp": 8, **Z3}, precision="tf32"),
    plan("gradients in bf16", LLAMA, 1, {"dp": 8, **Z2}, gradient_dtype="bf16"),
    plan("norms of queries", QWEN, 1, {"dp": 8, **Z3}),
    plan("experts", MIXTRAL, 4, {"dp": 32, **Z3, **FULL}),
    plan("no overlap", LLAMA, 1, {"dp": 8, **Z1}, overlap_grad_reduce=False),
    plan("buckets", LLAMA, 1, {"dp": 8, **Z2}, bucket_mb=400),
    plan("groups", LLAMA, 2, {"dp": 16, "dp_replicate": 2, **Z3}),
    plan(
        "groups, ulysses",
        LLAMA,
        2,
        {"cp": 2, "dp": 8, "dp_replicate": 4, **Z3},
        seq=8192,
        **ULYSSES,
    ),
    plan("a second copy", LLAMA, 2, {"dp": 16, "hpz": 8, **Z3}),
    plan(
        "a second copy of pairs, ulysses",
        LLAMA,
        2,
        {"cp": 2, "dp": 8, "hpz": 2, **Z3},
        seq=8192,
        **ULYSSES,
    ),
    plan("weights in 8 bits", LLAMA, 2, {"dp": 16, **Z3}, weight_bits=8),
    plan(
        "zero++",
        "llama2-7b",
        2,
        {"dp": 16, "hpz": 8, **Z3},
        precision="fp16",
        weight_bits=8,
        gradient_bits=4,
    ),
)
DRIVES = "h100-sxm@dgx-2"


def moved(name, model, offload, nodes=1, *, gpu=H100, seq=4096, precision="bf16", **layout):
    """A plan of DeepSpeed that keeps something off the GPU."""
    layout = {"dp": 8 * nodes, **Z3, **layout, "offload": OffloadSpec(**offload)}
    return plan(name, model, nodes, layout, gpu=gpu, seq=seq, precision=precision)


ALL, DRIVEN = {"optimizer": 1.0}, {"optimizer": 1.0, "tier": "nvme"}
DEEPSPEED_OFFLOADED = (
    moved("stage 1 updates on the host", LLAMA, ALL, **Z1),
    moved("stage 2 updates on the host, fp16", "llama2-13b", ALL, precision="fp16", **Z2),
    moved("stage 3 updates on the host", LLAMA, ALL),
    moved("a tenth of the optimizer", LLAMA, {"optimizer": 0.1}),
    moved("weights on the host", LLAMA, {"parameters": "cpu"}),
    moved("weights and optimizer on the host", "llama3.1-70b", ALL | {"parameters": "cpu"}, 2),
    moved("weights and half the optimizer", LLAMA, {"optimizer": 0.5, "parameters": "cpu"}),
    moved("optimizer on drives", LLAMA, DRIVEN, gpu=DRIVES),
    moved("weights on drives", LLAMA, {"parameters": "nvme"}, gpu=DRIVES),
    moved("both on drives", "llama3.1-70b", DRIVEN | {"parameters": "nvme"}, gpu=DRIVES),
    moved("drives under weights on the host", LLAMA, DRIVEN | {"parameters": "cpu"}, gpu=DRIVES),
    moved("weights on drives, optimizer not", LLAMA, ALL | {"parameters": "nvme"}, gpu=DRIVES),
    moved("experts on drives", MIXTRAL, DRIVEN | {"parameters": "nvme"}, gpu=DRIVES, **FULL),
    moved("large tables on drives", "llama3.1-405b", DRIVEN | {"parameters": "nvme"}, 4,
          gpu=DRIVES, **FULL),
    moved("checkpoints on the host", LLAMA, {"checkpoints": 1}, **FULL),
    moved("checkpoints of stage 1", LLAMA, {"checkpoints": 1}, **Z1, **FULL),
    moved("all on the host", LLAMA, ALL | {"parameters": "cpu", "checkpoints": 1}, **FULL),
    moved("all away", QWEN, DRIVEN | {"parameters": "nvme", "checkpoints": 1}, gpu=DRIVES, **FULL),
    moved("larger micro batch away", LLAMA, ALL | {"checkpoints": 1}, micro_batch_size=4, **FULL),
    moved("optimizer on drives over 4 nodes", "llama3.1-70b", DRIVEN, 4, gpu=DRIVES),
)  # fmt: skip


def long(name, seq, layout=None, offload=None, nodes=1, *, model=LLAMA, batch=16, **more):
    """A plan of ArcticTraining, whose ranks share the sequences of a node unless told."""
    ranks = 8 * nodes
    layout = {"cp": ranks, "tiled_loss": True, **Z3, **FULL, **(layout or {})}
    layout["dp"] = ranks // layout["cp"]
    gpu = DRIVES if offload and "nvme" in offload.values() else H100
    layout["offload"] = OffloadSpec(**(offload or {}))
    return plan(name, model, nodes, layout, gpu=gpu, seq=seq, batch=batch, **more)


K, MLPS = 1024, {"tiled_mlp": True}
ALONE, LIGER = {"cp": 1, "tiled_loss": False}, {"cp": 1}
ARCTIC_TRAINING = (
    long("ulysses", 128 * K),
    long("plain", 4 * K, ALONE),
    long("nothing recomputed", 4 * K, ALONE | {"recompute": "none", "recompute_method": None,
         "recompute_num_layers": None}),
    long("liger tiles the loss", 32 * K, LIGER, liger="0.6"),
    long("tiled mlp", 32 * K, LIGER | MLPS, liger="0.6"),
    long("stage 1", 32 * K, ALONE | Z1),
    long("stage 2", 32 * K, ALONE | Z2),
    long("ulysses over 2", 64 * K, {"cp": 2}),
    long("ulysses over 4", 64 * K, {"cp": 4}),
    long("ulysses, tiled mlp", 512 * K, MLPS),
    long("ulysses over 16", 1024 * K, {"cp": 8} | MLPS, nodes=2),
    long("checkpoints on the host", 1024 * K, MLPS, {"checkpoints": 1}),
    long("optimizer on the host", 512 * K, MLPS, {"optimizer": 1.0}),
    long("half the optimizer", 512 * K, MLPS, {"optimizer": 0.5, "checkpoints": 1}),
    long("weights on the host", 1024 * K, MLPS, {"parameters": "cpu", "checkpoints": 1}),
    long("all on the host", 3072 * K, MLPS, ALL | {"parameters": "cpu", "checkpoints": 1}),
    long("on drives", 512 * K, MLPS, DRIVEN | {"parameters": "nvme"}),
    long("70b over 8", 64 * K, MLPS, ALL | {"checkpoints": 1}, model="llama3.1-70b"),
    long("qwen over 8", 256 * K, MLPS, {"checkpoints": 1}, model=QWEN),
    long("no overlap", 128 * K, overlap_grad_reduce=False, gradient_dtype="fp32"),
)  # fmt: skip
ACCELERATE = (
    plan("zero-3", LLAMA, 1, {"dp": 8, **Z3}),
    plan("zero-2", LLAMA, 1, {"dp": 8, **Z2}),
    plan("two nodes", LLAMA, 2, {"dp": 16, **Z3}),
    plan("hsdp", LLAMA, 2, {"dp": 16, "dp_replicate": 2, **Z3}),
    plan("hsdp, zero-2", LLAMA, 4, {"dp": 32, "dp_replicate": 4, **Z2}),
    plan("eight nodes", "llama3.1-70b", 8, {"dp": 64, **Z3, **FULL}),
    plan("full recomputation", LLAMA, 1, {"dp": 8, **Z3, **FULL}),
    plan("larger micro batch", LLAMA, 1, {"dp": 8, "micro_batch_size": 4, **Z3, **FULL}),
    plan("tp", LLAMA, 1, {"tp": 2, "dp": 4, **Z3}),
    plan("tp over 8", "llama3.1-70b", 8, {"tp": 8, "dp": 8, **Z3, **FULL}),
    plan("tp and hsdp", LLAMA, 2, {"tp": 2, "dp": 8, "dp_replicate": 2, **Z3}),
    plan("cp", LLAMA, 1, {"cp": 2, "dp": 4, **Z3}, seq=8192),
    plan("cp round a ring", LLAMA, 1, {"cp": 4, "dp": 2, **Z3}, seq=8192, cp_comm_type="p2p"),
    plan("tp and cp", LLAMA, 2, {"tp": 2, "cp": 2, "dp": 4, **Z3}, seq=8192),
    plan("compiled", LLAMA, 1, {"dp": 8, **Z3}, compile=True),
    plan("fp16", "llama2-7b", 1, {"dp": 8, **Z3}, precision="fp16"),
    plan("tf32", "llama3.2-1b", 1, {"dp": 8, **Z3}, precision="tf32"),
    plan("norms of queries", QWEN, 1, {"dp": 8, **Z3}),
    plan("experts", MIXTRAL, 4, {"dp": 32, **Z3, **FULL}),
    plan("larger experts", "qwen3-30b-a3b", 4, {"dp": 32, **Z3, **FULL}, gpu=H200),
)
NARROW, GALORE = {"state_precision": "bf16"}, {"name": "galore", "rank": 256}


def trained(name, *args, training=None, gpus=8, **more):
    """A plan of the Trainer of transformers, with more of its training, on GPUs of a node."""
    made = plan(name, *args, **more)
    cluster = made.cluster if gpus == 8 else f"1x{gpus}:{H100}"
    return replace(made, training=made.training | (training or {}), cluster=cluster)


TRANSFORMERS = (
    *(one for one in ACCELERATE if one.name not in ("tp and cp", "fp16")),
    trained("every fourth layer", LLAMA, 1, {"dp": 8, **Z3, **FULL, "recompute_method": "block",
            "recompute_num_layers": 8}),
    trained("liger", LLAMA, 1, {"dp": 8, "tiled_loss": True, **Z3}, liger="0.6"),
    trained("states in bf16", LLAMA, 1, {"dp": 8, **Z3}, training=NARROW),
    trained("replicas", "llama3.2-1b", 1, {"dp": 8, "zero_stage": 0}, training=NARROW),
    trained("tp alone", LLAMA, 1, {"tp": 8, "zero_stage": 0}, training=NARROW),
    trained("8-bit moments", LLAMA, 1, {"dp": 8, **Z3},
            training={"optimizer": {"name": "adamw8bit"}}),
    trained("galore", LLAMA, 1, {"dp": 8, "zero_stage": 0}, training={"optimizer": GALORE}),
    trained("galore by layer", LLAMA, 1, {"micro_batch_size": 4, "zero_stage": 0}, gpus=1, batch=4,
            training={"optimizer": GALORE}),
    trained("apollo-mini", LLAMA, 1, {"dp": 8, "zero_stage": 0},
            training={"optimizer": {"name": "apollo-mini"}}),
    trained("lion", LLAMA, 1, {"dp": 8, "zero_stage": 0},
            training=NARROW | {"optimizer": {"name": "lion"}}),
    trained("ep", MIXTRAL, 4, {"dp": 32, "ep": 8, **Z3, **FULL}),
    trained("ep and hsdp", "qwen3-30b-a3b", 4,
            {"dp": 32, "ep": 16, "dp_replicate": 2, **Z3, **FULL}),
    trained("experts over tp", MIXTRAL, 4, {"tp": 2, "etp": 2, "dp": 16, **Z3, **FULL}),
)  # fmt: skip

PLANS = {
    "megatron-lm": (*MEGATRON, *CUT, BUCKETS, NARROW_TOKENS),
    "megatron-bridge": MEGATRON + BRIDGED,
    "megatron-zero-bubble": ZERO_BUBBLE,
    "torchtitan": TORCHTITAN,
    "deepspeed": DEEPSPEED + DEEPSPEED_OFFLOADED,
    "arctic-training": ARCTIC_TRAINING,
    "accelerate": ACCELERATE,
    "transformers": TRANSFORMERS,
}
