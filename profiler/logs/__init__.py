"""Step time and memory out of training logs and profiler traces."""
