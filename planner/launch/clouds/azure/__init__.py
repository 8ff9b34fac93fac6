"""Azure: GPU machines, each in its own resource group.

Azure Resource Manager is called through `azure-core` and `azure-identity`, one request per call and without their
retries, so that a plan prints exactly what is sent.
"""
