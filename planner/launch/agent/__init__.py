"""Code that is sent to and runs on the rented machine: standard library, NumPy and Keras only.

These files import each other and nothing else of gpuplan; `watchdog` stays on this computer, where no cloud ends a
hanging run.
"""
