"""The chart as a release on a cluster, without vLLM."""

import json
from dataclasses import dataclass
from typing import Any

from minicluster.cluster import Cluster
from support.chart import CHART

OPERATOR = "gatevalve-operator"
BREAK_GLASS = "break-glass"
"""The group that passes the policies of an installation."""

VALUES: dict[str, Any] = {
    "claims": {area: {"size": "1Gi", "accessModes": ["ReadWriteMany"]} for area in ("data", "sealed", "log")},
    "admission": {"breakGlassGroups": [BREAK_GLASS]},
}


@dataclass(frozen=True)
class Installation:
    """A release of the chart in a namespace of its own."""

    cluster: Cluster
    namespace: str

    def helm(self, verb: str, *args: str, **values: Any) -> str:
        """Run helm on the release with the chart and values."""
        given = ("--values", "-", "--take-ownership", "--force-conflicts")
        chart = ("gatevalve", str(CHART), *given)
        return self.cluster.helm(verb, *chart, "--namespace", self.namespace, *args, input=json.dumps(VALUES | values))

    def uninstall(self, *args: str) -> None:
        """Take the release away; what the chart keeps stays."""
        self.cluster.helm("uninstall", "gatevalve", "--namespace", self.namespace, *args)

    def kubectl(self, *args: str, send: dict[str, Any] | None = None, check: bool = True, timeout: float = 60) -> str:
        """Run kubectl in the namespace, with an object on its standard input."""
        given = ("--filename", "-") if send else ()
        text = json.dumps(send) if send else None
        return self.cluster.kubectl("--namespace", self.namespace, *args, *given, input=text, check=check, timeout=timeout)

    def break_glass(self, *args: str, send: dict[str, Any] | None = None) -> str:
        """The same as somebody whom the policies let pass."""
        return self.kubectl("--as=admin", "--as-group=system:masters", f"--as-group={BREAK_GLASS}", *args, send=send)

    def keys(self) -> dict[str, Any]:
        """Everything that was made once, at random."""
        secrets = {name: self.cluster.get("secret", name, self.namespace)["data"] for name in ("gatevalve-signing", "gatevalve-seal")}
        return secrets | {"keys": self.cluster.get("configmap", "gatevalve-keys", self.namespace)["data"]}

    def await_operator(self) -> None:
        """Wait until the operator is ready."""
        self.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=120s", timeout=150)
