"""Steps of exported modules on two ranks, and of their decoders whole in one process.

Takes names of modules, and says of each, step by step, loss and gradient norm of both; the last is
started once more as `python -m NAME --steps 2 --data own:tokens`. The ranks are forks of one
process: torch, and what its first step imports, is imported once.
"""

import importlib
import os
import runpy
import sys
from multiprocessing import get_context
from tempfile import TemporaryDirectory

import torch
import torch._dynamo
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

STEPS, RANKS = 2, 2


def decoder(module):
    """Whole, with small random matrices and norms near one, the same on every rank."""
    model, generator = module.Decoder(), torch.Generator().manual_seed(1)
    if module.TIE_WORD_EMBEDDINGS:
        model.head.weight = model.embedding.weight
    for weight in model.parameters():
        random = 0.1 * torch.randn(weight.shape, generator=generator)
        weight.data.copy_(random + (weight.ndim == 1))
    return model


def steps_of(module, replicas):
    """Micro batches of every step, those of one replica after those of another."""
    generator, count = torch.Generator().manual_seed(2), replicas * module.MICRO_BATCHES
    shape = (STEPS, count, module.MICRO_BATCH_SIZE, module.SEQ_LENGTH + 1)
    return torch.randint(module.VOCAB_SIZE, shape, generator=generator)


def whole(module):
    """All sequences of a step in one batch."""
    model = decoder(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    table = module.rotation(torch.device("cpu"))
    for number, step in enumerate(steps_of(module, module.DP_REPLICATE * module.DP_SHARD), 1):
        loss = module.loss_of(model, step.flatten(0, 1), table) * module.MICRO_BATCHES
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        say(f"whole {number}: loss {loss:.6f}, gradient norm {norm:.6f},")


def say(line):
    """Of all ranks the first one does."""
    if torch.distributed.get_rank() == 0:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def exported(module):
    """As the module trains, from the same weights on the same sequences."""
    made = module.sharded_model

    def loaded(mesh, device):
        model, options = made(mesh, device), StateDictOptions(full_state_dict=True)
        set_model_state_dict(model, decoder(module).state_dict(), options=options)
        return model

    def batches(replica, replicas):
        for step in steps_of(module, replicas):
            yield from step.chunk(replicas)[replica]

    module.sharded_model, module.destroy_process_group = loaded, lambda: None
    module.train(STEPS, batches)


def main(rank, store, names):
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    os.environ.update({name: str(value) for name, value in own.items()})
    torch.distributed.init_process_group("gloo", store, rank=rank, world_size=RANKS)
    for name in names:
        module = importlib.import_module(name)
        say(f"module {name}")
        exported(module)
        whole(module)
    say("module own")
    torch.distributed.barrier()
    sys.argv = [names[-1], "--steps", str(STEPS), "--data", "own:tokens"]
    runpy.run_path(importlib.import_module(names[-1]).__file__, run_name="__main__")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    with TemporaryDirectory() as folder:
        fork, store = get_context("fork"), f"file://{folder}/store"
        ranks = [
            fork.Process(target=main, args=(rank, store, sys.argv[1:])) for rank in range(RANKS)
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    sys.exit(max(abs(one.exitcode) for one in ranks))
