"""Local profiler: clocks, steady windows, statistics, environment, input pipeline; independent of workloads."""
