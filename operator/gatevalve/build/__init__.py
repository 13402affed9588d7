"""Pure builders from contracts to Kubernetes objects."""
