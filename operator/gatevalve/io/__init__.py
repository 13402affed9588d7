"""All I/O of the operator: the Kubernetes API, serving pods, the store, the signing key and the clock."""
