"""Rent the machine that a plan chose, run the script on it, and end it reliably.

    request ─▶ LaunchPlan (pure, API calls as data) ─▶ apply (the only part that costs money) ─▶ events

`core` has what all providers share: the plan, the ledger, start-up scripts, the protocol of an adapter
(`core/cloud_adapter.py`). `clouds` has one package or module per provider. The modules beside them check a plan,
apply it, end machines and list them. `agent` runs on the rented machine; `export` serves other launchers.
"""
