"""Google Cloud: GPU machines of Compute Engine (`compute`) and TPU slices as queued resources (`tpu`)."""
