"""Room profiler/fit."""
