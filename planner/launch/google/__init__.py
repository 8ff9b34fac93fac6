"""Google Cloud: GPU machines of Compute Engine (`compute`) and TPU slices as queued resources (`tpu`).

    places    zones, machine types and TPU runtimes by name
    options   what `--option NAME=VALUE` may say
    rest      one call over HTTPS, as the discovery documents describe it; the cloud's clock
    faults    Google's errors, sorted
    compute   a GPU machine as calls, and back
    tpu       a TPU slice as calls, and back
    adapter   both, behind the protocol

The interfaces are called over HTTPS with `google-auth`, not through `google-cloud-compute`: what the plan
prints is then byte for byte what is sent, nothing is retried behind the ledger's back, no helper polls
another host than the one that was set, and TPU deadlines (`runDuration`) exist in the REST interface
`v2alpha1` only.
"""
