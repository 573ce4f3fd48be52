"""Unit names and conversions. Inside the program: bytes, seconds, FLOP; nothing else."""

GIB = 2**30
GB = 10**9
TERA = 10**12
MICROSECOND = 1e-6
SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86_400

BYTES_FP32 = 4
BYTES_BF16 = 2
BYTES_FP8 = 1
