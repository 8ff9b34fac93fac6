"""The kernels that a framework launches for a traced step."""
