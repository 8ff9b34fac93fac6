"""Azure: GPU machines, each in its own resource group.

    options      options of `--option NAME=VALUE`
    rest         calls to Azure Resource Manager over HTTPS; the cloud's clock
    error_codes  classification of Azure's errors
    normalize    canonical spelling of answers, so that they can be compared
    network      resource group and network of a machine, without inbound access
    caps         timer on the machine and order at Azure that end it
    prices       maximum cost and current retail prices
    attempt      calls that start a machine
    machine      parsing of a machine's description
    adapter      the adapter

Azure Resource Manager is called through `azure-core` and `azure-identity`, one request per call and without their
retries, so that a plan prints exactly what is sent.
"""
