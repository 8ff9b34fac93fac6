"""Google Cloud: GPU machines of Compute Engine (`compute`) and TPU slices as queued resources (`tpu`).

zones        zones, machine types and TPU runtimes by name
options      options of `--option NAME=VALUE`
access       credentials, endpoints, the cloud's clock; translation of errors of Google's libraries
clients      calls through google-cloud-compute, and through google-cloud-tpu where that suffices
rest         calls over HTTPS that Google's clients do not cover
error_codes  classification of Google's errors
compute      calls and parsing of a GPU machine
tpu          calls and parsing of a TPU slice
upload       upload of a folder to the run's bucket
inventory    resources with our labels in projects and buckets
prices       current price from the Cloud Billing Catalog
adapter      the adapter
"""
