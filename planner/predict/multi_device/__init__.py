"""Steps on several devices: interconnect, collectives, data parallelism."""
