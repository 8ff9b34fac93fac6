"""Hand a chosen offer over to an engine that exists: its own kind of file, with its own way to stop.

    handover    from `plan.json` to what all engines need: machine, code, deadline
    names       what engines call an accelerator
    shell       the lines that fetch, install and run, with the deadline around them
    skypilot, dstack, kubernetes, ray    pure: a handover as that engine's document, and what it leaves open
    colab       the same as a notebook
    engines     all of them by name
    sky         `sky launch`, as a program on the PATH

Nothing here starts a machine but `sky`, and nothing here is in gpuplan's ledger: the engine's own tools show
and end what it has started.
"""
