"""Runs a script over Accelerate on processes of a CPU as on GPUs: FSDP2 and tensor ranks over gloo.

Accelerate refuses both there, of its own accord: torch does not. The first argument is `mesh` where
the script is to take FSDP2 of Accelerate, which it would leave on a CPU, or `cut`; then come its
own.
"""

import runpy
import sys

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

of_gpus, is_available = AcceleratorState.__init__, torch.accelerator.is_available


def of_cpus(self, *args, fsdp_plugin=None, **kwargs):
    of_gpus(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None:
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = fsdp_plugin


def once():
    """The script asks first, torch later."""
    torch.accelerator.is_available = is_available
    return True


AcceleratorState.__init__ = of_cpus
Accelerator.multi_device = property(lambda self: self.num_processes > 1)
if sys.argv[1] == "mesh":
    torch.accelerator.is_available = once
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
