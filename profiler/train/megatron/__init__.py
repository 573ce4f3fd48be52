"""megatron-core as it is, on GPUs over NCCL, or on a CPU over gloo with stand-ins for CUDA.

`refused` says what cannot be run, `config` what megatron-core is told, `train` does it.
"""
