"""Unit names and conversions. Inside the program: bytes, seconds, FLOP; nothing else."""

GIB = 2**30
GB = 10**9
TERA = 10**12
MICROSECOND = 1e-6
SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86_400

BYTES_FP32 = 4
BYTES_BF16 = 2
BYTES_FP8 = 1


def long_unit(value_seconds: float) -> tuple[int, str]:
    """Seconds of the unit that a duration is stated in, and its name: more than one of it."""
    if value_seconds > SECONDS_PER_DAY:
        return SECONDS_PER_DAY, "days"
    if value_seconds > SECONDS_PER_HOUR:
        return SECONDS_PER_HOUR, "hours"
    return (SECONDS_PER_MINUTE, "minutes") if value_seconds > SECONDS_PER_MINUTE else (1, "s")
