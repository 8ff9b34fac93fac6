"""The parts of `measure_device.py`: what is timed, how, where, and how it is kept."""
