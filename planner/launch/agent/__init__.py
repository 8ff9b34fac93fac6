"""Code that is sent to and runs on the rented machine: standard library, NumPy and Keras only.

    supervise            enforces the deadline, polls for preemption, restarts the script after a crash
    runner               runs the training script unchanged, with `fit` wrapped
    resume               the wrapped `fit`: resumes from the last checkpoint
    order                position in the data: trained batches are skipped, or the epoch is restarted
    fingerprint          hashes of batches that identify the order of data
    randomness           states of the random number generators that order data
    checkpoint           files of a checkpoint
    state                weights, seeds, metrics and random states as files
    callback             Keras callback: saves, times steps, leaves on request
    control_flags        requests to the training process, and its exit code
    step_info            batch size, precision and backend of a `fit`
    timing               step times, compared with the plan
    preemption_notices   preemption notices of each cloud
    watchdog             ends a hanging run on this computer, where no cloud does

These files import each other and nothing else of gpuplan.
"""
