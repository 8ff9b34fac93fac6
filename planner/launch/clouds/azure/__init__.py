"""Azure: GPU machines, each in a resource group of its own.

    options   what `--option NAME=VALUE` may say
    rest      one call over HTTPS to Azure Resource Manager; the cloud's clock
    faults    Azure's errors, sorted
    spelling  answers in one spelling, so that they can be compared
    network   the group and the network around a machine: no way in
    timer     what ends the machine from inside, in shell
    caps      what ends the machine, as calls that are read back
    prices    what it costs at most, and by the retail prices now
    attempt   a machine as calls
    machine   a machine from Azure's own description
    adapter   all of it, behind the protocol

Azure Resource Manager is called through `azure-core` and `azure-identity`, one request a call: what the plan
prints is what is sent, and nothing is retried behind the ledger's back.
"""
