"""Start exactly the machine that a plan chose, and be sure that it stops.

    request ─▶ LaunchPlan (pure, the exact calls as data) ─▶ apply (the only thing that costs money) ─▶ events

The rooms, from the bottom: `faults` (what can go wrong, in words that all clouds share), `calls` and
`blueprint` (a plan as data), `request` (what is asked for), `caps` (how long and how much at most),
`adapter` (what a provider must supply), `ledger` (what was meant and what came of it), `engine` (apply),
`ending` (stop and reap), `listing` (ps). A provider lives in a folder of its own; `providers` knows them by
name.
"""
