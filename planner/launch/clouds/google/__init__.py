"""Google Cloud: GPU machines of Compute Engine (`compute`) and TPU slices as queued resources (`tpu`).

places     zones, machine types and TPU runtimes by name
options    what `--option NAME=VALUE` may say
access     credentials, endpoints, the cloud's clock; errors of Google's libraries, translated
clients    calls through google-cloud-compute, and through google-cloud-tpu where that covers them
rest       calls over HTTPS where no client of Google's covers them, and why
faults     Google's errors, sorted
compute    a GPU machine as calls, and back
tpu        a TPU slice as calls, and back
code       a folder as an object of the run's bucket
inventory  what carries our labels in projects and buckets
prices     today's price from the Cloud Billing Catalog
adapter    all of it, behind the protocol
"""
