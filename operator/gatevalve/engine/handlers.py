"""kopf glue: low-level event handlers that only tell the engine what was seen, settings, and the login."""

from __future__ import annotations

import logging
from typing import Any, Protocol, cast

import kopf
from kubernetes.aio.client.configuration import Configuration

from gatevalve.engine.cache import WATCHED
from gatevalve.io.kube import load_configuration
from gatevalve.io.ports import KubeObject, Resource


class Observer(Protocol):
    """Whoever wants to know what the watches tell."""

    def saw(self, resource: Resource, kind: str | None, thing: KubeObject) -> None:
        """An object was listed (no kind), added, modified or deleted."""
        ...


def registry_for(observer: Observer) -> kopf.OperatorRegistry:
    """Handlers of every watched resource. Timers, daemons and change handlers are not used: they add finalizers and annotations."""
    registry = kopf.OperatorRegistry()
    for resource in WATCHED:
        _register(registry, resource, observer)
    kopf.on.login(registry=registry)(_login)
    return registry


def operator_settings() -> kopf.OperatorSettings:
    """No posting, no scanning for namespaces or definitions, label selectors on shared resources, watches that notice silence."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.watching.connect_timeout = 10
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    for resource, label in WATCHED.items():
        if label:
            settings.watching.label_selectors[resource.plural] = label
    return settings


def quiet_kopf() -> None:
    """kopf reports every handled event at INFO."""
    logging.getLogger("kopf").setLevel(logging.WARNING)


def _register(registry: kopf.OperatorRegistry, resource: Resource, observer: Observer) -> None:
    group, _, version = resource.api_version.rpartition("/")

    async def handle(*, event: kopf.RawEvent, **_: Any) -> None:
        observer.saw(resource, event["type"], cast(KubeObject, event["object"]))

    kopf.on.event(group, version, resource.plural, registry=registry, id=f"saw-{resource.plural}")(handle)


async def _login(**_: Any) -> kopf.ConnectionInfo:
    """The same credentials that our own client uses; asked for again when a token has expired."""
    return connection_info(await load_configuration())


def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """kopf's form of a client configuration."""
    header = configuration.api_key.get("BearerToken", "")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=header.split(" ", 1)[-1] or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
