"""Training on torch alone: FSDP2, tensor parallelism of DTensor, its pipelining, a context ring.

`model` is a decoder, `parallel` cuts it, `pipeline` runs it stage by stage, `ring` is attention
over context ranks, `count` counts what is sent and kept, `trainer` takes steps.
"""
