"""Time of kernels on one accelerator."""
