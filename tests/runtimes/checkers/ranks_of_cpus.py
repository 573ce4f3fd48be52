"""Runs a script over Accelerate on processes of a CPU as on GPUs: its FSDP2, over gloo.

Accelerate refuses it there, of its own accord: torch does not.
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
torch.accelerator.is_available = once
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
