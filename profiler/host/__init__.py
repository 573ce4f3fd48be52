"""Room profiler/host."""
