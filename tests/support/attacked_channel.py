"""A served channel under attack: what its alias answers all the while, and where people read what was tried."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.stage import CHANNEL, NAMESPACE, Stage
from gatevalve.contracts.names import HEADER_RELEASE
from minicluster.errors import ClusterError, CommandError

OPERATOR, POOL = "deployment/gatevalve-operator", "gatevalve-pool-support"
ENGINE_PORT, METRICS_PORT, ETCD_PORT = 8000, 8080, 2379
PATIENCE_SECONDS = 300
ASK_EVERY_SECONDS, ASK_ON_SECONDS, FORWARD_SECONDS = 0.1, 2.0, 15.0
LOST_FORWARDS = 2
QUESTION = "What is two plus three?"

Send = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer of a pod: status, body, and the entry that it names."""

    status: int
    body: Any
    entry: str | None = None


@dataclass
class Asked:
    """What clients of the alias saw: (status, entry) of every reply, and how often the way to the pod was lost."""

    replies: Counter[tuple[int, str | None]] = field(default_factory=Counter)
    lost: int = 0


@dataclass(frozen=True)
class Attacked:
    """The story's channel, seen by somebody with all rights of a cluster's administrator."""

    stage: Stage

    # ---- the alias

    @contextmanager
    def pod(self) -> Iterator[Pod]:
        """The pool's one pod."""
        with ExitStack() as ways:

            def way() -> str:
                target = f"pod/{self.stage.pool_pods()[0]}"
                return f"http://127.0.0.1:{ways.enter_context(self.stage.cluster.port_forward(NAMESPACE, target, ENGINE_PORT))}"

            yield Pod(way)

    @contextmanager
    def untouched(self) -> Iterator[str]:
        """Clients ask through the alias meanwhile and for a while after: all of them are answered, from the entry that it yields."""
        asked, stop = Asked(), threading.Event()
        with self.pod() as pod:
            before = pod.ask()
        assert before.status == 200, before
        thread = threading.Thread(target=self._ask_on, args=(asked, stop), daemon=True)
        thread.start()
        try:
            yield str(before.entry)
            time.sleep(ASK_ON_SECONDS)
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
        assert set(asked.replies) == {(200, before.entry)}, asked.replies
        assert asked.lost <= LOST_FORWARDS

    def _ask_on(self, asked: Asked, stop: threading.Event) -> None:
        """Ask until told to stop, with a new port-forward now and then: one breaks under many connections."""
        while not stop.is_set():
            try:
                with self.pod() as pod:
                    ask_on(pod, asked, stop)
            except (ClusterError, OSError, IndexError):
                asked.lost += 1
                stop.wait(1)

    def answers_from(self, entry: str) -> None:
        """Wait until the pod answers the alias from an entry."""

        def answered() -> bool:
            try:
                with self.pod() as pod:
                    return (reply := pod.ask()).status == 200 and reply.entry == entry
            except (ClusterError, OSError, IndexError):
                return False

        self.eventually(f"the alias answered from {entry}", answered)

    # ---- what is told

    def condition(self, kind: str, of: str = CHANNEL, resource: str = "adapterchannel") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        conditions = self.stage.get(resource, of).get("status", {}).get("conditions", [])
        return next(((item["status"], item["reason"], item["message"]) for item in conditions if item["type"] == kind), ("", "", ""))

    def told(self, kind: str, status: str, reason: str, *words: str) -> None:
        """Wait for a condition of the channel with this reason and these words in its message."""

        def is_told() -> bool:
            now = self.condition(kind)
            return now[:2] == (status, reason) and all(word in now[2] for word in words)

        self.eventually(f"{kind} is {status} {reason} with {words}", is_told)

    def events(self, reason: str, *words: str) -> int:
        """How often an event with this reason and these words was seen."""
        found = self.stage.items("events", "--field-selector", f"reason={reason}")
        return sum(int(event["count"]) for event in found if all(word in event["message"] for word in words))

    def event(self, reason: str, *words: str, more_than: int = 0) -> None:
        """Wait for an event with this reason and these words, seen more often than before."""
        self.eventually(f"event {reason} with {words}", lambda: self.events(reason, *words) > more_than, seconds=60)

    def metric(self, name: str, **labels: str) -> float:
        """A sample of the operator's metrics, whose labels include these; 0 when there is none."""
        with self.stage.cluster.port_forward(NAMESPACE, OPERATOR, METRICS_PORT) as port:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        wanted = [f'{key}="{value}"' for key, value in {"channel": CHANNEL, **labels}.items()]
        lines = [line for line in text.splitlines() if line.startswith(f"gatevalve_{name}{{") and all(label in line for label in wanted)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @contextmanager
    def tampering(self, reason: str, *words: str) -> Iterator[str]:
        """The attack goes in here; then condition, status, event and metric tell of it, and the alias has not noticed."""
        before, events = self.metric("tampering_total", reason=reason), self.events("Tampered", reason, *words)
        with self.untouched() as entry:
            yield entry
            self.event("Tampered", reason, *words, more_than=events)
        assert self.condition("Untampered")[0] == "False"
        assert reason in self.tamperings()
        assert self.metric("tampering_total", reason=reason) > before

    def tamperings(self) -> list[str]:
        """Reasons of what the channel remembers."""
        return [known["reason"] for known in self.stage.get("adapterchannel", CHANNEL)["status"]["tampering"]["known"]]

    @contextmanager
    def broken_log(self, *words: str) -> Iterator[None]:
        """The attack goes in here; then condition, event and metric tell that the log is broken, and the last good release serves on."""
        events = self.events("LogInvalid")
        with self.untouched():
            yield
            self.look_again()
            self.told("LogValid", "False", "LogInvalid", *words)
            assert self.metric("log_valid") == 0
        self.event("LogInvalid", more_than=events)

    def mended(self) -> None:
        """Wait until the channel is as a healthy one is."""
        self.look_again()
        for kind in ("LogValid", "GateReady", "Ready"):
            self.told(kind, "True", "AsExpected")
        assert self.metric("log_valid") == 1

    # ---- what an administrator can do

    def kubectl(self, *args: str, send: Send | None = None) -> str:
        """kubectl as cluster-admin."""
        given = ("--filename", "-") if send else ()
        return self.stage.kubectl(*args, *given, stdin=json.dumps(send) if send else None)

    def refusal(self, *args: str, send: Send | None = None) -> str:
        """How kubectl is told no; fails when it is not."""
        try:
            told = self.kubectl(*args, send=send)
        except CommandError as error:
            return " ".join(error.stderr.split())
        raise AssertionError(f"nobody refused kubectl {' '.join(args)}: {told}")

    @contextmanager
    def without(self, part: str, *args: str, send: Send | None = None) -> Iterator[None]:
        """Take one admission policy away, which refuses the attack before and after; the attack is kubectl's arguments."""
        name = f"{part}.{NAMESPACE}.gatevalve.dev"
        binding = self.stage.get("validatingadmissionpolicybinding", name)
        assert name in self.refusal(*args, send=send)
        self.kubectl("delete", "validatingadmissionpolicybinding", name)
        try:
            self.eventually(f"{name} is no longer enforced", lambda: not self._is_refused(name, args, send), seconds=30)
            yield
        finally:
            fresh = {key: value for key, value in binding["metadata"].items() if key in ("name", "labels", "annotations")}
            self.kubectl("create", send={**binding, "metadata": fresh})
            self.eventually(f"{name} is enforced again", lambda: self._is_refused(name, args, send), seconds=30)

    def _is_refused(self, policy: str, args: tuple[str, ...], send: Send | None) -> bool:
        try:
            self.kubectl(*args, "--dry-run=server", send=send)
        except CommandError as error:
            return policy in error.stderr
        return False

    def patch(self, resource: str, name: str, patch: Any, *args: str) -> tuple[str, ...]:
        """kubectl's arguments for a merge patch, or for a JSON patch when given a list."""
        kind = "json" if isinstance(patch, list) else "merge"
        return ("patch", resource, name, "--type", kind, "--patch", json.dumps(patch), *args)

    def pin(self, entry: str) -> str:
        """Pin the channel to an entry that does not serve, wait for the Rollback entry, and give its name."""
        before, pin = self.serving(), {"entry": entry, "reason": "a test", "by": self.stage.user()}
        self.kubectl(*self.patch("adapterchannel", CHANNEL, {"spec": {"pin": pin}}))
        self.eventually(f"a Rollback to {entry}", lambda: self.serving() != before)
        return self.serving()

    def unpin(self) -> None:
        """Remove the pin."""
        self.kubectl(*self.patch("adapterchannel", CHANNEL, [{"op": "remove", "path": "/spec/pin"}]))

    def look_again(self) -> None:
        """Have the operator look at the channel now."""
        self.kubectl("annotate", "adapterchannel", CHANNEL, "--overwrite", f"test/looked-at={time.time()}")

    # ---- the log and the store

    def head(self) -> str:
        """The newest entry."""
        return str(self.stage.releases()[-1]["metadata"]["name"])

    def serving(self) -> str:
        """The entry that the alias shall be answered from."""
        return str(self.newest("Open", "Promote", "Rollback")["metadata"]["name"])

    def newest(self, *actions: str) -> dict[str, Any]:
        """The newest entry of one of the actions."""
        return next(release for release in reversed(self.stage.releases()) if release["spec"]["action"] in actions)

    def area(self, area: str) -> Path:
        """The channel's directory in an area of the store: data, sealed or log."""
        uid = self.stage.releases()[0]["spec"]["channel"]["uid"]
        return self.stage.cluster.claim_path(f"gatevalve-{area}", NAMESPACE) / str(uid)

    @contextmanager
    def etcd(self) -> Iterator[Etcd]:
        """The API server's own database, past every admission; pods of the rig share the control plane's network."""
        with self.stage.cluster.port_forward(NAMESPACE, f"pod/{self.stage.pool_pods()[0]}", ETCD_PORT) as port:
            yield Etcd(f"http://127.0.0.1:{port}/v3/kv")

    # ---- waiting

    def eventually(self, what: str, holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds; fails with what people would look at."""
        self.stage.wait_for(what, seconds, holds)

    @contextmanager
    def operator_away(self) -> Iterator[None]:
        """No operator runs meanwhile; afterwards a new process of it does, which remembers nothing."""
        self.kubectl("scale", OPERATOR, "--replicas", "0")
        selector = ("--selector", "app.kubernetes.io/component=operator")
        try:
            self.eventually("the operator to be gone", lambda: not self.stage.items("pods", *selector))
            yield
        finally:
            self.kubectl("scale", OPERATOR, "--replicas", "1")
            self.stage.kubectl("rollout", "status", OPERATOR, f"--timeout={PATIENCE_SECONDS}s", timeout=PATIENCE_SECONDS + 30)


class Pod:
    """A pod of the pool, asked at its own port; `way` opens one to it."""

    def __init__(self, way: Callable[[], str]) -> None:
        self._way = way
        self._url = way()

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """One request; a refusal is a reply too. Port-forwards break now and then: where one is gone nobody was asked."""
        try:
            return self._request(method, path, body, headers)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
        self._url = self._way()
        return self._request(method, path, body, headers)

    def _request(self, method: str, path: str, body: Any, headers: dict[str, str] | None) -> Reply:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._url + path, data, {"content-type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return Reply(reply.status, _parsed(reply.read()), reply.headers.get(HEADER_RELEASE))
        except urllib.error.HTTPError as refused:
            return Reply(refused.code, _parsed(refused.read()))

    def ask(self, **body: Any) -> Reply:
        """One short answer through the alias."""
        messages = [{"role": "user", "content": QUESTION}]
        return self.request("POST", "/v1/chat/completions", {"model": CHANNEL, "messages": messages, "max_tokens": 1, **body})

    def words(self) -> str:
        """What the alias answers at temperature 0."""
        return str(self.ask(temperature=0, max_tokens=24).body["choices"][0]["message"]["content"])

    def report(self) -> dict[str, Any]:
        """What the pod tells of the channel."""
        found: dict[str, Any] = self.request("GET", f"/gatevalve/v1/channels/{CHANNEL}").body
        return found


@dataclass(frozen=True)
class Etcd:
    """Objects of the log as etcd holds them: JSON below their keys."""

    url: str

    def read(self, entry: str) -> dict[str, Any]:
        """An entry's object."""
        found = self._call("range", {"key": _key(entry)})["kvs"][0]["value"]
        loaded: dict[str, Any] = json.loads(base64.b64decode(found))
        return loaded

    def write(self, entry: str, thing: dict[str, Any]) -> None:
        """Put an entry's object."""
        self._call("put", {"key": _key(entry), "value": base64.b64encode(json.dumps(thing).encode()).decode()})

    def delete(self, *entries: str) -> None:
        """Delete entries' objects."""
        for entry in entries:
            assert self._call("deleterange", {"key": _key(entry)})["deleted"] == "1"

    def _call(self, call: str, body: dict[str, str]) -> Any:
        request = urllib.request.Request(f"{self.url}/{call}", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
            return json.loads(reply.read())


def ask_on(pod: Pod, asked: Asked, stop: threading.Event) -> None:
    """Ask through the alias for as long as one port-forward is used. Raises OSError when the way to the pod is lost."""
    end = time.monotonic() + FORWARD_SECONDS
    while not stop.wait(ASK_EVERY_SECONDS) and time.monotonic() < end:
        reply = pod.ask()
        asked.replies[reply.status, reply.entry] += 1


def _key(entry: str) -> str:
    return base64.b64encode(f"/registry/gatevalve.dev/adapterreleases/{NAMESPACE}/{entry}".encode()).decode()


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
