"""The document of a measured machine: its points and the constants fitted through them.

AttentionPoint: the core of causal attention on one rank.
CollectivePoint: a collective or message on groups that all run at once.
CopyPoint: bytes between a GPU and host memory, or between memory and a drive.
EndPoint: the embedding, or the final norm, output projection and loss, on one rank.
Failure: something requested that was not measured.
Flag: what is wrong with a timing.
Host: one node that was measured.
HOST_COPIES: kinds of copies between host and GPU.
HostCopy: kind of a copy between host and GPU.
LayerPoint: one whole transformer layer on one rank, nothing recomputed.
LinkPoint: messages between two nodes, or two GPUs of one, while other pairs do the same.
MEASURED_RUNTIME: layers and ends of plain PyTorch, which are timed wherever torch is.
MemoryPoint: memory that the caching allocator does not count, or takes beyond what is requested of
    it.
OffloadedStepPoint: a step of a small model whose weights and states lie on a drive, with its
    estimate.
Operation: name of a measured operation.
OptimizerPoint: a step of an optimizer over parameters of one rank.
Origin: where a profile comes from.
OverlapPoint: compute, and communication or copies, at the same time.
Point: any measured point.
PowerPoint: power of one GPU in a state, and how fast it runs in it.
ProductPoint: a matrix product `m x k` times `k x n`, or `groups` of them in one grouped kernel.
Profile: measurements of one kind of GPU and the nodes it is in.
Software: versions that decide how fast kernels are.
StreamPoint: seconds of a kernel bound by memory.
Timing: seconds of one call, over repeats.
"""

from trainplan.costmodel.profiles.profile import (
    HOST_COPIES,
    MEASURED_RUNTIME,
    AttentionPoint,
    CollectivePoint,
    CopyPoint,
    EndPoint,
    Failure,
    Flag,
    Host,
    HostCopy,
    LayerPoint,
    LinkPoint,
    MemoryPoint,
    OffloadedStepPoint,
    Operation,
    OptimizerPoint,
    Origin,
    OverlapPoint,
    Point,
    PowerPoint,
    ProductPoint,
    Profile,
    Software,
    StreamPoint,
    Timing,
)
