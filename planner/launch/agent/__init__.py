"""Code that is sent to and runs on the rented machine: standard library, NumPy and Keras only.

    supervise      enforces the deadline, polls for preemption, restarts the script after a crash
    runner         runs the training script unchanged, with `fit` wrapped
    resume         the wrapped `fit`: resumes from the last checkpoint
    order          position in the data: trained batches are skipped, or the epoch is restarted
    checkpoint     files of a checkpoint, requests to the training process, and its exit code
    state          weights, seeds, metrics and random states as files; fingerprints of batches
    proof          Keras, the plan's accelerators and the disk, before the script runs
    timing         step times, compared with the plan; batch size, precision and backend of a `fit`
    watchdog       ends a hanging run on this computer, where no cloud does

These files import each other and nothing else of gpuplan.
"""
