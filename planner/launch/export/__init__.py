"""Export a chosen offer as a file for another launcher, with that launcher's own way to stop.

    task          from `plan.json` to what all engines need: machine, code, deadline
    engine_names  accelerator names of the engines
    shell         commands that fetch, install and run, with a deadline
    skypilot, dstack, kubernetes, ray    pure: a task as the engine's document, and the limits of its stop
    colab         the same as a notebook
    engines       all engines by name
    sky           starts `sky launch`

Only `sky` starts a machine. Exported runs are not in gpuplan's ledger: the engine's own tools list and end them.
"""
