"""Azure: GPU machines, each in its own resource group, by one request per call, which the plan prints."""
