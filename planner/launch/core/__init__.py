"""Plan, engine, ledger and clean-up: what every provider shares."""
