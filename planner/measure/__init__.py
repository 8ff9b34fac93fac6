"""The local profiler: clocks, steady windows, statistics, the machine, the input pipeline. Knows no workload."""
