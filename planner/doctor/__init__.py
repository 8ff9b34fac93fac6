"""Diagnosis of an installation for `gpuplan doctor`; nothing is sent, and no secret is read out."""
