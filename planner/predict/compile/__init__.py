"""Step times from XLA's compiler: the step is compiled for an accelerator that is not there."""
