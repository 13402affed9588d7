"""What the commands read from the cluster, with the user's own kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from gatevalve.contracts import names
from gatevalve.contracts.errors import ClusterError
from gatevalve.engine.chain import belongs_to
from gatevalve.io.ports import KubeObject


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one namespace."""

    namespace: str

    @classmethod
    def connect(cls, kubeconfig: str | None, namespace: str | None) -> Reader:
        """Load the kubeconfig; the namespace is the current context's when none is given. Raises ClusterError."""
        try:
            config.load_kube_config(config_file=kubeconfig)  # type: ignore[no-untyped-call]
            _, current = config.list_kube_config_contexts(config_file=kubeconfig)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, yaml.YAMLError) as error:
            raise ClusterError(f"no usable kubeconfig: {error}; set KUBECONFIG or give --kubeconfig") from error
        return cls(namespace or current["context"].get("namespace") or "default")

    def entries(self, channel: str) -> list[KubeObject]:
        """The channel's AdapterReleases in order. Raises ClusterError."""
        try:
            listed: Any = client.CustomObjectsApi().list_namespaced_custom_object(
                names.GROUP, names.VERSION, self.namespace, names.RELEASES
            )
        except (ApiException, HTTPError) as error:
            raise ClusterError(f"the API server did not list AdapterReleases: {_why(error)}") from error
        mine = [item for item in listed["items"] if belongs_to(channel, item["metadata"]["name"])]
        return sorted(mine, key=lambda item: item["metadata"]["name"])

    def certificates(self) -> list[bytes]:
        """The certificates in ConfigMap gatevalve-keys. Raises ClusterError."""
        try:
            found = client.CoreV1Api().read_namespaced_config_map(names.KEYS_CONFIGMAP, self.namespace)
        except (ApiException, HTTPError) as error:
            raise ClusterError(f"ConfigMap {names.KEYS_CONFIGMAP} in namespace {self.namespace}: {_why(error)}") from error
        return [text.encode() for _, text in sorted((found.data or {}).items())]


def _why(error: ApiException | HTTPError) -> str:
    return str(error.reason) if isinstance(error, ApiException) else f"it does not answer: {error}"
