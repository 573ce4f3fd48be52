"""Steps of the decoder of an exported module as replicas of `DistributedDataParallel`.

`torchrun --nproc_per_node 2 ddp_step.py FOLDER STEPS`; prints steps as the module does.
"""

import os
import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def made(module, device):
    torch.manual_seed(0)
    model = module.Decoder()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.02) if weight.ndim > 1 else nn.init.ones_(weight)
    return DistributedDataParallel(model, gradient_as_bucket_view=True), module.rotation(device)


def train(module, steps):
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // dist.get_world_size()))
    model, table = made(module, torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    data = module.random_tokens(dist.get_rank(), dist.get_world_size())
    for step in range(1, steps + 1):
        start = time.perf_counter()
        for number in range(module.MICRO_BATCHES):
            last = number == module.MICRO_BATCHES - 1
            with nullcontext() if last else model.no_sync():
                loss = module.loss_of(model, next(data), table)
                loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if dist.get_rank() == 0:
            seconds = time.perf_counter() - start
            written = f"step {step}: gradient norm {norm.item():.6f}, {seconds:.3f} s,"
            sys.stdout.write(f"{written}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import train_fsdp2

    train(train_fsdp2, int(sys.argv[2]))
