"""Export a chosen offer as a file for another launcher, with that launcher's own way to stop.

    task          from `plan.json` to what all engines need: machine, code, deadline, shell commands
    engine_names  accelerator names of the engines
    skypilot, dstack, kubernetes    pure: a task as the engine's document, and the limits of its stop
    colab         the same as a notebook
    engines       all engines by name

Only `skypilot.launch_with_sky` starts a machine. Exported runs are not in gpuplan's ledger: the engine's own tools
list and end them.
"""
