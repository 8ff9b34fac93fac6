"""Rent the machine that a plan chose, run the script on it, and end it reliably.

    request ─▶ LaunchPlan (pure, API calls as data) ─▶ apply (the only part that costs money) ─▶ events

`prepare` turns the flags of `gpuplan launch` and an estimate into a checked plan. `core` has what all providers
share: the plan, the engine that applies it, the ledger, teardown, and the protocol of an adapter
(`core/cloud_adapter.py`). `clouds` has one package or module per provider and finds them by name. `agent`
runs on the rented machine. `export` writes the chosen offer as a file for other launchers. `listing` is
`gpuplan ps`; `outcome` waits for the end of a run and turns its result into a profile.
"""
