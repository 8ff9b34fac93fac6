"""Google Cloud: GPU machines of Compute Engine (`compute`) and TPU slices as queued resources (`tpu`).

zones        zones, machine types and TPU runtimes by name
options      options of `--option NAME=VALUE`
access       credentials, endpoints, the cloud's clock; classification of errors
calls        calls through Google's clients, and over HTTPS where these do not suffice
compute      calls and parsing of a GPU machine
tpu          calls and parsing of a TPU slice
upload       upload of a folder to the run's bucket
inventory    resources with our labels in projects and buckets
adapter      the adapter, and its current prices from the Cloud Billing Catalog
"""
