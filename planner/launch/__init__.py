"""Rent the machine that a plan chose, run the script on it, and end it reliably.

    request ─▶ LaunchPlan (pure, API calls as data) ─▶ apply (the only part that costs money) ─▶ events

`core` has what all providers share: the plan, the ledger, start-up scripts, and the protocol of an adapter
(`core/cloud_adapter.py`). `clouds` has one package or module per provider and finds them by name. The modules of this
folder turn flags and an estimate into a checked plan, apply it, end machines, and list them. `agent` runs on the
rented machine. `export` writes the chosen offer as a file for other launchers.
"""
