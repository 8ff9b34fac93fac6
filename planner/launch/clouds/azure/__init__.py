"""Azure: GPU machines, each in its own resource group.

    options      options of `--option NAME=VALUE`
    rest         calls to Azure Resource Manager over HTTPS; the cloud's clock
    replies      parsing of replies: canonical spelling, errors, machines
    network      resource group and network of a machine, without inbound access
    caps         timer on the machine and order at Azure that end it
    attempt      calls that start a machine
    adapter      the adapter, and its prices

Azure Resource Manager is called through `azure-core` and `azure-identity`, one request per call and without their
retries, so that a plan prints exactly what is sent.
"""
