"""Memory of a GPU that no tensor accounts for."""

from collections.abc import Iterator
from functools import partial

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.profiles import MemoryPoint, Point
from trainplan.profiler.bench.inputs.tensors import Tensors, device_of, task, tensors
from trainplan.profiler.bench.layers.decoder import Layer, rotation
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

STEPS = 6
"""Steps of the mini run: what is reserved has stopped growing by then."""
MINI = ModelSpec(
    name="mini",
    num_hidden_layers=8,
    hidden_size=2048,
    intermediate_size=5632,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=32_000,
    max_position_embeddings=2048,
)
"""Large enough that tensors are whole blocks of the allocator, and fits every GPU."""
SEQ_LENGTH, MICRO_BATCH_SIZE = 2048, 2


def memory_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Context, communicator and allocator; a CPU has none of them."""
    if place.device == "cpu":
        return
    yield task(place, "context_bytes", partial(_context, place), together=False)
    if place.world_size > 1:
        yield task(place, "communicator_bytes", partial(_communicator, place), together=True)
    yield task(place, "reserve_fraction", partial(_reserve, place), together=False)


def _outside_bytes(place: Place) -> int:
    """Bytes used on the GPU beside what the allocator holds; other programs count too."""
    device = device_of(place)
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free - torch.cuda.memory_reserved(device))


def _context(place: Place, clock: Clock) -> Iterator[Point]:
    """CUDA or HIP with the libraries of products loaded."""
    square = torch.ones(256, 256, device=device_of(place), dtype=torch.bfloat16)
    torch.mm(square, square)
    yield MemoryPoint(name="context_bytes", value=max(0, _outside_bytes(place)))


def _communicator(place: Place, clock: Clock) -> Iterator[Point]:
    """What the first collective of a new group of all ranks takes."""
    before = _outside_bytes(place)
    group = dist.new_group()
    assert not isinstance(group, int), "all ranks are members"
    try:
        dist.all_reduce(torch.ones(2**20, device=device_of(place)), group=group)
        taken = _outside_bytes(place) - before
    finally:
        dist.destroy_process_group(group)
    yield MemoryPoint(name="communicator_bytes", value=max(0, taken))


def _reserve(place: Place, clock: Clock) -> Iterator[Point]:
    """Reserved over allocated at the peak of some steps, less one."""
    device = device_of(place)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    _train(tensors(place, "bf16"))
    allocated = torch.cuda.max_memory_allocated(device)
    reserved = torch.cuda.max_memory_reserved(device)
    yield MemoryPoint(name="reserve_fraction", value=reserved / allocated - 1)


def _train(make: Tensors) -> None:
    """Layers one after the other, gradients in fp32, Adam on fp32 weights."""
    layers = [Layer(make, MINI, Sharding(), moe=False) for _ in range(MINI.num_hidden_layers)]
    weights = [weight for layer in layers for weight in layer.parameters]
    masters = [weight.detach().float().requires_grad_() for weight in weights]
    for master in masters:
        master.grad = torch.zeros_like(master)
    adam, table = torch.optim.AdamW(masters, lr=1e-4, fused=True), rotation(make, MINI, SEQ_LENGTH)
    for _ in range(STEPS):
        x = make.normal(MICRO_BATCH_SIZE, SEQ_LENGTH, MINI.hidden_size)
        for layer in layers:
            x = layer(x, table)
        torch.autograd.backward(x.float().square().mean())
        with torch.no_grad():
            for weight, master in zip(weights, masters, strict=True):
                if master.grad is not None and weight.grad is not None:
                    master.grad.copy_(weight.grad)
                weight.grad = None
        adam.step()


MEMORY = Item(
    "memory", "memory of context, communicators and allocator", memory_tasks, goes_first=True
)
