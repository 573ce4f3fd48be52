"""What can be measured: products, layers, collectives, memory, host and drive, one sort a file.

caps: most work of one measurement on a device.
ITEMS: all sorts in measuring order, memory first.
LAYER: whole layers, as an item.
megatron_notes: what of the layers is not measured as Megatron-LM trains them, and why.
model_shapes: products of the request's model, most useful first.
products: all passes of the products of one layer of each sort and of the head.
RUNTIME: name of the runtime whose own layers are measured.
torch_tasks: layers of plain PyTorch, on slices of any degree.
"""

from trainplan.profiler.bench.inputs.shapes import caps, model_shapes, products
from trainplan.profiler.bench.items import ITEMS
from trainplan.profiler.bench.layer import LAYER, torch_tasks
from trainplan.profiler.bench.megatron_layer import RUNTIME, megatron_notes
