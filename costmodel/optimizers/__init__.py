"""Optimizers by name: what each keeps of a matrix, in which precision, and what its step computes.

ADAMW: the usual one.
FP8_LM: formats of states that FP8-LM has, which store something in 8 bits.
LEVEL_RULES: rules of every job at a level of FP8-LM.
Matrix: tensors of one shape on one rank.
Multiplied: a matrix product of an update, `m x k` times `k x n`, so many times a step.
Optimizer: AdamW, and the base of all others.
optimizer_of: the optimizer of a spec.
OPTIMIZER_RULES: rules of every job that another optimizer than AdamW trains, whatever the
    runtime.
OPTIMIZERS: all by name, those of plug-ins too.
Ranks: numbers of ranks, or of tensors.
Role: a matrix inside a layer, a table at an end (embedding, output projection), or a vector.
STORED: formats of states but `o0`, which is what the runtime does by itself.
StoredStates: bytes of one parameter's states.
updates_by_layer: is a layer updated as soon as its gradients are there, so that no others wait?
    By itself on one GPU; nothing is reduced there.
"""

from trainplan.costmodel.optimizers.adamw import ADAMW
from trainplan.costmodel.optimizers.base import Matrix, Multiplied, Optimizer, Ranks, Role
from trainplan.costmodel.optimizers.registry import OPTIMIZERS, optimizer_of, updates_by_layer
from trainplan.costmodel.optimizers.rules import LEVEL_RULES, OPTIMIZER_RULES
from trainplan.costmodel.optimizers.state_precision import FP8_LM, STORED, StoredStates
