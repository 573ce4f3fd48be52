"""Steps of exported modules, and of their decoders whole in one process; started by torchrun.

Takes names of modules, and says of each, step by step, loss and gradient norm of both.
"""

import importlib
import sys

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

STEPS = 2


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


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = importlib.import_module(name)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        say(f"module {name}")
        exported(found)
        whole(found)
    torch.distributed.destroy_process_group()
