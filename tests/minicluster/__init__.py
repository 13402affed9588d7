"""A real Kubernetes on one machine without a container engine, for tests and the demo."""

from minicluster.cluster import Cluster
from minicluster.errors import ClusterError, CommandError
from minicluster.images import Image, product_images
from minicluster.machine import preflight

__all__ = ["Cluster", "ClusterError", "CommandError", "Image", "preflight", "product_images"]
