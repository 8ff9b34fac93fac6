"""Code that runs on the machine that was started, sent there: standard library, NumPy and Keras only.

    supervise    ends the machine's work by the deadline, watches for preemption, restarts the script after a crash
    runner       runs the training script, unchanged, with `fit` wrapped
    resume       the wrapped `fit`: goes on from the last checkpoint
    order        the place in the data: batches that were trained are skipped, or the epoch starts again
    fingerprint  hashes of batches, by which the order of data is recognized
    randomness   states of the random number generators that order data
    checkpoint   the files of a checkpoint
    state        weights, seeds, metrics and random states as files
    callback     saves, times, and leaves when it is told to
    timing       times of steps, compared with the plan
    notices      preemption notices of each cloud
    watchdog     ends a hanging run on this computer, which has no cloud to stop it

These files import each other and nothing else of gpuplan.
"""
