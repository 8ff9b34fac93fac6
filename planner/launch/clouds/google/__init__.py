"""Google Cloud: GPU machines of Compute Engine and TPU slices as queued resources."""
