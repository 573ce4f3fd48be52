"""Steps of DeepSpeed's ZeRO-3 on processes of a CPU: bytes that rank 0 hands to each group, and of
the second copy that it keeps when a backward pass has ended and when weights are updated.

`zero_plus_plus_bytes.py SECTION STEPS NODE`: keys of the section, micro batches of a step, ranks of
a node. Kernels that quantise are of GPUs: a stand-in has their shapes. Prints JSON.
"""

import json
import os
import sys
from collections import Counter

os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from torch import distributed

SECTION, STEPS, NODE = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
WIDTH, MATRICES = 64, 4
SENT = Counter()
CALLS = {"all_gather_into_tensor": 0, "reduce_scatter_tensor": 1, "all_to_all_single": 0}
NAMES = {"output_tensor": 0, "input": 1, "output": 0}


class Kernels:
    """What `csrc/quantization` returns: numbers in few bits, and scales."""

    Symmetric = 0

    @staticmethod
    def quantize(values, groups, bits, kind):
        assert values.dtype == torch.half
        return values.to(torch.int8), torch.ones(groups)

    @staticmethod
    def dequantize(values, scales, groups, bits, kind):
        *outer, last = values.shape
        return torch.zeros((*outer, last * 8 // bits), dtype=torch.half)

    @staticmethod
    def swizzle_quant(values, groups, bits, *others):
        return torch.zeros(values.numel() * bits // 8, dtype=torch.int8), torch.ones(groups)

    @staticmethod
    def quantized_reduction(values, scales, before, after, *others):
        return torch.zeros(values.numel() // others[-1], dtype=torch.int8), torch.ones(after)


class Builder:
    def load(self):
        return Kernels


def counting(name):
    function = getattr(distributed, name)

    def counted(*arguments, **named):
        group = named.get("group")
        ranks = distributed.get_process_group_ranks(group or distributed.group.WORLD)
        given = [value for key, value in named.items() if NAMES.get(key) == CALLS[name]]
        tensor = given[0] if given else arguments[CALLS[name]]
        if tensor.dtype != torch.float32:  # not scales
            place = ",".join(map(str, ranks))
            SENT[f"{name} {place}"] += tensor.numel() * tensor.element_size()
        return function(*arguments, **named)

    setattr(distributed, name, counted)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        rows = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(MATRICES))
        self.rows = torch.nn.ModuleList(rows)

    def forward(self, inputs):
        for row in self.rows:
            inputs = torch.tanh(row(inputs))
        return inputs.square().mean()


def second_copy(model):
    """Bytes of it on this rank."""
    parts = [one.ds_secondary_tensor for one in model.parameters()]
    return sum(part.numel() * part.element_size() for part in parts if part is not None)


def main():
    for name in CALLS:
        counting(name)
    import deepspeed  # noqa: PLC0415 (keeps the functions that are counted)
    from deepspeed.accelerator import get_accelerator  # noqa: PLC0415
    from deepspeed.ops import op_builder  # noqa: PLC0415

    op_builder.QuantizerBuilder = Builder
    get_accelerator().device_count = lambda: NODE
    deepspeed.init_distributed("gloo")
    model = Layers()
    kept = {"param_persistence_threshold": 0, "max_reuse_distance": 0, "max_live_parameters": 0}
    whole = {f"stage3_{name}": value for name, value in kept.items()}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": STEPS,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "overlap_comm": False, **whole, **SECTION},
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=optimizer)
    for _ in range(2):  # the first step traces the modules
        SENT.clear()
        for _ in range(STEPS):
            engine.backward(engine(torch.randn(2, WIDTH, dtype=torch.bfloat16)))
            kept = second_copy(model)
            engine.step()
    if distributed.get_rank() == 0:
        copies = {"kept": kept, "left": second_copy(model)}
        found = {"params": MATRICES * WIDTH**2, "sent": SENT, **copies}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
