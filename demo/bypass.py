"""Going round the gate: four attempts with everything a cluster's administrator may do, and what the alias answers after each."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from demo.stage import CHANNEL, NAMESPACE, Stage, StoryError
from gatevalve.contracts.names import DATA_PATH, adapter_dir, adapter_name
from minicluster.errors import CommandError

ENGINE_PORT = 8000
POOL_CONFIGMAP = "gatevalve-pool-support"


@dataclass(frozen=True)
class Attempt:
    """An attempt: what somebody tries, how they were told no (None: nobody did), and whether the alias answers as before."""

    title: str
    refusal: str | None
    alias_untouched: bool

    @property
    def blocked(self) -> bool:
        """Refused, and without effect."""
        return self.refusal is not None and self.alias_untouched


@dataclass(frozen=True)
class Intruder:
    """Somebody who wants an adapter that the gate refused to serve all the same; it lies in the store, published for its evaluation."""

    stage: Stage
    adapter: dict[str, str]

    @classmethod
    def with_refused_adapter(cls, stage: Stage) -> Intruder:
        """Take the adapter that was rejected last. Raises StoryError when none was."""
        releases = stage.releases()
        refused = [release["spec"] for release in releases if release["spec"].get("verdict") == "Rejected" and "lineage" in release["spec"]]
        if not refused:
            raise StoryError("the gate refused nothing, so there is nothing to smuggle in")
        digest = refused[-1]["lineage"]["adapterDigest"]
        uri = adapter_dir(releases[0]["spec"]["channel"]["uid"], digest)
        return cls(stage, {"adapter": adapter_name(CHANNEL, digest), "digest": digest, "uri": uri})

    def attempts(self) -> list[Attempt]:
        """Every attempt in turn."""
        tries: tuple[tuple[str, Callable[[], str | None]], ...] = (
            ("kubectl create: an AdapterRelease that promotes the refused adapter", self._forge_entry),
            ("kubectl patch: the pool's ConfigMap routes the alias to the refused adapter", self._edit_document),
            ("POST /v1/load_lora_adapter: the refused adapter, by hand, on a pod", self._load_by_hand),
            ("PUT /gatevalve/v1/channels: the pod's own document, with another route in it", self._forge_document),
        )
        return [self._attempt(title, attempt) for title, attempt in tries]

    def _attempt(self, title: str, attempt: Callable[[], str | None]) -> Attempt:
        before = self._answering()
        refusal = attempt()
        return Attempt(title, refusal, self._answering() == before)

    def forged_entry(self) -> dict[str, Any]:
        """The next entry of the log as this somebody would have it: a promotion of the refused adapter."""
        newest = self.stage.releases()[-1]["spec"]
        spec = {
            **newest,
            "sequence": newest["sequence"] + 1,
            "action": "Promote",
            "reason": "GatePassed",
            "message": "forged",
            "previousDigest": newest["digest"],
            "serves": {**self.adapter, "rank": 8},
        }
        spec.pop("restores", None)
        name = f"{CHANNEL}-{spec['sequence']:06d}"
        return {"apiVersion": "gatevalve.dev/v1alpha1", "kind": "AdapterRelease", "metadata": {"name": name}, "spec": spec}

    def rerouted(self, signed: dict[str, Any]) -> dict[str, Any]:
        """The committed document with a later revision and the refused adapter behind the alias, under the old signature."""
        document = json.loads(json.dumps(signed["document"]))
        sequence, step = document["revision"]
        name, digest, uri = self.adapter["adapter"], self.adapter["digest"], self.adapter["uri"]
        document |= {"revision": [sequence, step + 1], "adapters": [{"name": name, "digest": digest, "uri": uri, "role": "Live"}]}
        document["routes"] = [{**document["routes"][0], "adapter": name}]
        return {**signed, "document": document}

    def _forge_entry(self) -> str | None:
        return self._refused_by_kubectl("create", "--filename", "-", stdin=json.dumps(self.forged_entry()))

    def _edit_document(self) -> str | None:
        signed = json.loads(self.stage.get("configmap", POOL_CONFIGMAP)["data"][CHANNEL])
        patch = json.dumps({"data": {CHANNEL: json.dumps(self.rerouted(signed))}})
        return self._refused_by_kubectl("patch", "configmap", POOL_CONFIGMAP, "--type", "merge", "--patch", patch)

    def _load_by_hand(self) -> str | None:
        body = {"lora_name": self.adapter["adapter"], "lora_path": f"{DATA_PATH}/{self.adapter['uri']}"}
        return self._refused_by_pod("POST", "/v1/load_lora_adapter", body)

    def _forge_document(self) -> str | None:
        signed = json.loads(self.stage.get("configmap", POOL_CONFIGMAP)["data"][CHANNEL])
        return self._refused_by_pod("PUT", f"/gatevalve/v1/channels/{CHANNEL}", self.rerouted(signed))

    def _refused_by_kubectl(self, *args: str, stdin: str | None = None) -> str | None:
        try:
            self.stage.kubectl(*args, stdin=stdin)
        except CommandError as error:
            _, denied, why = error.stderr.strip().splitlines()[-1].partition("denied request: ")
            if not denied:
                raise
            return why
        return None

    def _refused_by_pod(self, method: str, path: str, body: Mapping[str, object]) -> str | None:
        status, text = self._ask(method, path, body)[:2]
        return None if status < 400 else f"{status} {_said(text)}"

    def _answering(self) -> str | None:
        """The entry that a pod answers the alias from."""
        status, text, entry = self._ask("POST", "/v1/completions", {"model": CHANNEL, "prompt": "a", "max_tokens": 1})
        if status != 200:
            raise StoryError(f"the alias answered {status}: {text[:500]}")
        return entry

    def _ask(self, method: str, path: str, body: Mapping[str, object]) -> tuple[int, str, str | None]:
        """Status, text and x-gatevalve-release of one request to a pod of the pool."""
        headers = {"content-type": "application/json"}
        with self.stage.cluster.port_forward(NAMESPACE, f"pod/{self.stage.pool_pods()[0]}", ENGINE_PORT) as port:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return reply.status, reply.read().decode(), reply.headers.get("x-gatevalve-release")
            except urllib.error.HTTPError as refused:
                return refused.code, refused.read().decode(errors="replace"), None


def _said(text: str) -> str:
    """What a pod gives as its reason: the message of an error, or of a report."""
    body = json.loads(text)
    return str((body.get("error") or body)["message"])
