"""What runs on the machine that was started: standard library and Keras only, so that it can be sent there.

    supervise   ends the machine's work by the deadline, watches for preemption, restarts what crashed
    runner      runs the training script, unchanged, with `fit` wrapped
    resume      the wrapped `fit`: goes on where the last checkpoint was, to the batch
    checkpoint  the files of a checkpoint: whole, or not there
    callback    saves, times, and leaves when it is told to
    timing      how long steps take, and whether that is what was planned
    notices     what each cloud says before it takes a spot machine back
    watchdog    a second pair of eyes on this computer, which has no cloud to stop it

These files import each other and nothing else of gpuplan.
"""
