"""The Kubernetes API through kubernetes.aio: decoded JSON in, decoded JSON out, typed errors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from gatevalve.contracts.errors import AlreadyExistsError, ClusterError, ConflictError, InvalidError, NotFoundError
from gatevalve.io.ports import KubeObject, Listing, Resource

REQUEST_SECONDS = 10
JSON, MERGE_PATCH, APPLY_PATCH = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"


async def load_configuration() -> Configuration:
    """Credentials from $KUBECONFIG where it is set, from the Pod's service account otherwise; raises ClusterError."""
    configuration = Configuration()
    try:
        if path := os.environ.get("KUBECONFIG"):
            await load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise ClusterError(f"no access to a cluster: {error}; run in a Pod with a service account, or set KUBECONFIG") from error
    return configuration


class KubeCluster:
    """One namespace of a cluster. Implements `ports.Cluster`."""

    def __init__(self, configuration: Configuration, namespace: str) -> None:
        """Take credentials; nothing is asked yet."""
        self._client = ApiClient(configuration)
        self._namespace = namespace

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: Resource, name: str) -> KubeObject | None:
        """The object as the API server holds it now (a quorum read), or None."""
        try:
            return await self._request("GET", resource, name)
        except NotFoundError:
            return None

    async def list(self, resource: Resource, labels: str = "") -> Listing:
        """All objects now, or those that a label selector names."""
        answer = await self._request("GET", resource, query={"labelSelector": labels} if labels else {})
        items = tuple({"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in answer["items"])
        return Listing(items, answer["metadata"]["resourceVersion"])

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> KubeObject:
        """Create an object; raises AlreadyExistsError when the name is taken."""
        return await self._request("POST", resource, query={"fieldManager": "gatevalve"}, body=body)

    async def delete(self, resource: Resource, name: str, uid: str | None = None) -> None:
        """Delete an object and, in the background, what it owns; one that is gone already is fine."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._request("DELETE", resource, name, body=body)
        except NotFoundError:
            return

    async def apply(self, resource: Resource, body: Mapping[str, Any], manager: str, subresource: str = "") -> KubeObject:
        """Server-side apply with force; raises ConflictError when resourceVersion is given and differs."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", resource, body["metadata"]["name"], subresource, query, whole, APPLY_PATCH)

    async def merge(self, resource: Resource, name: str, patch: Mapping[str, Any], subresource: str = "") -> KubeObject:
        """JSON merge patch; raises NotFoundError when there is no such object, ConflictError when a given resourceVersion differs."""
        return await self._request("PATCH", resource, name, subresource, body=patch, content_type=MERGE_PATCH)

    async def _request(
        self,
        method: str,
        resource: Resource,
        name: str = "",
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> KubeObject:
        path = resource.path(self._namespace, name, subresource) + (f"?{urlencode(query)}" if query else "")
        what = f"{method} {resource.plural}{f'/{name}' if name else ''}{f'/{subresource}' if subresource else ''}"
        try:
            status, raw = await self._send(method, path, body, content_type)
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            raise ClusterError(f"{what}: the API server does not answer: {str(error) or type(error).__name__}") from error
        if not 200 <= status <= 299:
            raise _error(what, status, raw)
        decoded: KubeObject = json.loads(raw)
        return decoded

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None, content_type: str) -> tuple[int, bytes]:
        headers = {"Accept": JSON, "Content-Type": content_type}
        method, url, headers, sent, _ = await self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        answer = await self._client.call_api(method, url, headers, sent, _request_timeout=REQUEST_SECONDS)
        return answer.status, await answer.read()  # type: ignore[no-untyped-call]


def _error(what: str, status: int, raw: bytes) -> ClusterError:
    reason, message = _status(raw)
    taken = AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    kinds: dict[int, type[ClusterError]] = {400: InvalidError, 404: NotFoundError, 409: taken, 422: InvalidError}
    return kinds.get(status, ClusterError)(f"{what}: {status} {reason}: {message}")


def _status(raw: bytes) -> tuple[str, str]:
    """Reason and message of a metav1.Status; proxies answer with other bodies."""
    try:
        body = json.loads(raw)
        return str(body["reason"]), str(body.get("message", ""))
    except (ValueError, KeyError, TypeError):
        return "Unknown", raw[:200].decode(errors="replace")
