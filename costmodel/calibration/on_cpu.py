"""What a job on a machine without GPUs is trained in, where it is not stated."""

from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.hardware import ClusterSpec, GpuSpec
from trainplan.costmodel.job import Precision

USUAL: Precision = "bf16"
WIDE: Precision = "fp32"


def usual_precision(cluster: ClusterSpec) -> Precision:
    """Of a job that names none: bf16, on a CPU the one whose products were measured to be faster.

    Source: `GpuSpec.peak_tflops` of a profile, the highest rate of any product.
    """
    device = cluster.groups[0].device
    if not cluster.on_cpu or device is None:
        return USUAL
    return USUAL if _rate(device, USUAL) > _rate(device, WIDE) else WIDE


def precision_note(cluster: ClusterSpec, measured: Measured) -> str:
    """Why `usual_precision` chose it on a CPU, from what was measured and what the host states."""
    device = cluster.groups[0].device
    assert device is not None, "a CPU is described by its profile"
    narrow, wide = _rate(device, USUAL), _rate(device, WIDE)
    speeds = f"bf16 products ran at {narrow:.3g} TFLOP/s, those of fp32 at {wide:.3g}"
    if narrow > wide:
        return f"precision bf16: {speeds}" if wide else "precision bf16: the one that was measured"
    if narrow:
        return f"precision fp32: {speeds}"
    hosts = measured.profile.hosts if measured.profile else ()
    units = sorted({unit for host in hosts for unit in host.bf16_units})
    if not units:
        return "precision fp32: no product was measured in bf16, and no unit for it is known here"
    return (
        f"precision fp32: no product was measured in bf16, for which the processor has "
        f"{' and '.join(units)}: `plan profile --precision bf16` measures whether it is faster"
    )


def _rate(device: GpuSpec, precision: Precision) -> float:
    """TFLOP/s of its fastest product; 0 where none was measured."""
    found = device.peak_tflops.get(precision)
    return found.value if found else 0.0
