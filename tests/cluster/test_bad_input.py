"""What people type wrong, on a real API server with the real operator and real Jobs: each ends with words that say what to do.

The serving Pods run the real middleware around a scripted engine. Nothing here ever moves an alias: that is the last test.
"""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.names import API_VERSION, traffic_dir
from gatevalve_trainer.evaluate.items import to_lines
from gatevalve_trainer.tasks import word_problems
from minicluster.cluster import Cluster
from minicluster.errors import CommandError
from support import evaluation, world
from support.bad_adapters import BAD_ADAPTERS, peft_directory, spoilt
from support.installation import OPERATOR, Installation
from support.scripted_pool import BASES, PORT, scripted_pod
from support.training import WINDOW, feedback, reply, tiny_base, write_segment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PATIENCE_SECONDS = 400
CROWD = 500
LONG_CHANNEL = "a-channel-of-forty-characters-exactly-40"
LONG_CANDIDATE = "a-candidate-of-forty-characters-in-all40"
TERMINAL = {"Promoted", "Rejected", "Inconclusive", "Skipped", "Errored", "Aborted"}

SERVED = ("adapters", "learning", "unschedulable", "imageless", "crowd", "captured", "misspelt", LONG_CHANNEL)
"""Channels whose alias the scripted pod answers."""

CHANNELS: dict[str, dict[str, Any]] = {
    **{name: {} for name in SERVED},
    "learning": {"training": {"recipe": "SFT"}},
    "unschedulable": {"training": {"pod": {"nodeSelector": {"no-such": "node"}}}},
    "imageless": {"training": {"pod": {"image": "nobody/trainer:1"}}},
    LONG_CHANNEL: {"evaluation": {"pod": {"image": "nobody/engine:1"}}},
    "crowd": {"paused": True},
    "captured": {"gatePolicy": "captured", "evaluation": {"pod": {"image": "nobody/engine:1"}}},
    "misspelt": {"gatePolicy": "misspelt"},
    "high-rank": {"adapter": {"rank": 32, "alpha": 64, "targetModules": ["q_proj"]}},
    "without-pods": {"serving": {"pool": "nobody"}},
    "without-policy": {"gatePolicy": "forgotten"},
    "down": {"serving": {"pool": "down"}},
    "static": {"serving": {"pool": "static"}},
}

ON_THE_RIG = {
    "larger": "an adapter of a larger base",
    "pickled": "a pickle",
    "cut": "weights cut in half",
    "nan": "NaN weights",
}
"""Bad adapters that are put to real fetch Jobs, by their directory in the inbox; the component tests fetch them all."""


@dataclass
class Scene:
    """The product on a cluster, the channels open, and every candidate of this module applied."""

    installation: Installation
    digests: dict[str, str] = field(default_factory=dict)

    def kubectl(self, *args: str, send: Any = None) -> str:
        """kubectl in the namespace."""
        return self.installation.kubectl(*args, send=send, timeout=300)

    def refusal(self, *args: str, send: Any = None) -> str:
        """What kubectl says when it must fail."""
        with pytest.raises(CommandError) as failure:
            self.kubectl(*args, send=send)
        return failure.value.stderr

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """kubectl apply, as a person would."""
        self.kubectl("apply", send=thing(kind, name, spec))

    def artifact(self, directory: str, digest: str | None = None) -> dict[str, Any]:
        """A directory of the inbox, with its digest unless another is given."""
        uri = f"file:///gatevalve/data/inbox/{directory}"
        return {"artifact": {"uri": uri, "digest": digest or self.digests.get(directory, "sha256:" + "0" * 64)}}

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object; empty when there is none."""
        text = self.kubectl("get", kind, name, "--output", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        """Objects of a kind."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output", "json", *args))["items"]
        return found

    def condition(self, kind: str, name: str, of: str) -> tuple[str, str]:
        """Reason and message of a condition; empty when it is not there yet."""
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next(((c["reason"], c["message"]) for c in conditions if c["type"] == of), ("", ""))

    def end_of(self, candidate: str) -> tuple[str, str, str]:
        """State, reason and message of a candidate at its end."""
        eventually(lambda: self.get("adaptercandidate", candidate).get("status", {}).get("state") in TERMINAL, f"the end of {candidate}")
        return self.get("adaptercandidate", candidate)["status"]["state"], *self.condition("adaptercandidate", candidate, "Decided")

    def jobs_of(self, candidate: str) -> list[str]:
        """Names of a candidate's Jobs."""
        return [job["metadata"]["name"] for job in self.items("jobs", "--selector", f"gatevalve.dev/candidate={candidate}")]

    def copy_in(self, target: str, directory: Path) -> None:
        """Copy a directory into the data area."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            archive.add(directory, arcname=".", filter=open_to_all)
        text, command = base64.b64encode(raw.getvalue()).decode(), f"mkdir -p /data/{target} && base64 -d | tar -x -C /data/{target}"
        space = self.installation.namespace
        self.installation.cluster.kubectl("exec", "-i", "desk", "--namespace", space, "--", "/bin/sh", "-c", command, input=text)


def policy(**primary: Any) -> dict[str, Any]:
    """A policy whose fixed file lies in the data area; fields of its Primary suite may be others."""
    spec = world.policy().wire()
    spec["suites"][0] |= primary
    spec["suites"][1]["items"]["digest"] = sha256(REGRESSION)
    return spec


REGRESSION = to_lines(evaluation.REGRESSION)
CAPTURED = 30
POLICIES = {"small": policy(), "captured": policy(items={"traffic": {"min": CAPTURED}}), "misspelt": policy(verifier="word-problms")}


def together(things: list[dict[str, Any]]) -> dict[str, Any]:
    """Many objects as one."""
    return {"apiVersion": "v1", "kind": "List", "items": things}


def open_to_all(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Temporary directories are their owner's alone; what nobody may read stays so."""
    if file.mode & 0o777:
        file.mode = 0o755 if file.isdir() else 0o644
    return file


def thing(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """An object of one of the four kinds."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def channel(name: str, **changes: Any) -> dict[str, Any]:
    """A channel on the scripted pod of pool `words`, its alias named as itself."""
    base = {"name": "tiny", "uri": "file:///models/tiny-words", "digest": tiny_base().digest}
    shape = {"rank": 8, "alpha": 16, "targetModules": ["q_proj", "v_proj"]}
    spec = {"alias": name, "base": base, "adapter": shape, "serving": {"pool": "words"}, "gatePolicy": "small"}
    return spec | {"capture": {"segmentSeconds": 1}} | changes


def eventually(holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Everything applied at once; the tests wait for their own part."""
    scene = Scene(Installation(cluster, "test-bad-input"))
    cluster.kubectl("create", "namespace", scene.installation.namespace)
    try:
        install(scene)
        set_the_stage(scene)
        copy_suites(scene, tmp_path_factory.mktemp("suites"))
        fill_the_inbox(scene, tmp_path_factory.mktemp("inbox"))
        write_traffic(scene, tmp_path_factory.mktemp("traffic"))
        apply_candidates(scene)
        yield scene
    finally:
        scene.installation.uninstall("--ignore-not-found")
        cluster.kubectl("delete", "namespace", scene.installation.namespace, "--wait=false")


def install(scene: Scene) -> None:
    """The chart, with the kinds unless another release has brought them."""
    cluster = scene.installation.cluster
    kinds = {"crds": {"install": not cluster.kubectl("get", "crd", "adapterchannels.gatevalve.dev", "--ignore-not-found").strip()}}
    scene.installation.helm("install", **kinds, models={"hostPath": str(BASES)})
    scene.installation.await_operator()


def set_the_stage(scene: Scene) -> None:
    """Serving pods, a desk to write the data area from, the policy and the channels."""
    certificate = json.loads(scene.kubectl("get", "configmap", "gatevalve-keys", "--output", "json"))["data"]["tls.crt"]
    key = sha256(certificate.encode())
    pods = [scripted_pod("words", key), scripted_pod("down", key, answers=False), scripted_pod("static", key, runtime_lora=False)]
    channels = [thing("AdapterChannel", name, channel(name, **changes)) for name, changes in CHANNELS.items()]
    policies = [thing("GatePolicy", name, spec) for name, spec in POLICIES.items()]
    scene.kubectl("apply", send=together([*pods, desk(), *policies, *channels]))
    scene.kubectl("wait", "--for=condition=Ready", "pod/desk", "--timeout=60s")


def desk() -> dict[str, Any]:
    """A pod with the data area mounted."""
    container = {
        "name": "desk",
        "image": "tool:1",
        "command": ["sleep", "infinity"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "gatevalve-data"}}
    spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "desk"}, "spec": spec}


def copy_suites(scene: Scene, directory: Path) -> None:
    """The fixed file that the policies name."""
    (directory / "regression.jsonl").write_bytes(REGRESSION)
    scene.copy_in("suites", directory)


def fill_the_inbox(scene: Scene, directory: Path) -> None:
    """A sound adapter, and bad ones."""
    good = peft_directory(directory / "good")
    scene.digests["good"] = directory_digest(good)
    for name, sentence in ON_THE_RIG.items():
        scene.digests[name] = spoilt(peft_directory(directory / name), BAD_ADAPTERS[sentence])
    closed = peft_directory(directory / "closed")
    for file in closed.iterdir():
        file.chmod(0o000)
    scene.copy_in("inbox", directory)


def write_traffic(scene: Scene, directory: Path) -> None:
    """Replies to channel `learning` that were all scored alike: nothing in them is better than anything else."""
    uid = scene.get("adapterchannel", "learning")["metadata"]["uid"]
    pairs = [(reply(number, channel="learning", entry="learning-000000"), feedback(number, 0.0)) for number in range(60)]
    segment = write_segment(directory, [record for pair in pairs for record in pair])
    scene.copy_in(f"{traffic_dir(uid)}/{segment.parent.name}", segment.parent)


def apply_candidates(scene: Scene) -> None:
    """Every candidate at once, so that Jobs run while the quick tests do."""
    good, alike = scene.artifact("good"), {"from": WINDOW["window_from"], "to": WINDOW["window_to"]}
    candidates = [
        candidate(LONG_CANDIDATE, LONG_CHANNEL, deadline="180s", **good),
        candidate("unschedulable", "unschedulable", deadline="90s", **good),
        candidate("imageless", "imageless", deadline="90s", **good),
        candidate("misspelt", "misspelt", **good),
        *(candidate(name, "adapters", **scene.artifact(name)) for name in ON_THE_RIG),
        candidate("wrong-digest", "adapters", **scene.artifact("good", "sha256:" + "0" * 64)),
        candidate("not-there", "adapters", **scene.artifact("nowhere")),
        candidate("closed", "adapters", **scene.artifact("closed")),
        candidate("silence", "learning", train={"snapshot": {"last": "1h"}}),
        candidate("all-alike", "learning", train={"recipe": "LoggedRL", "snapshot": alike}),
        candidate("mistaken", "learning", train={"snapshot": {"last": "1h"}, "parameters": {"clipLow": "0.1"}}),
        candidate("far-future", "learning", train={"snapshot": {"from": "2025-01-01T00:00:00Z", "to": "2999-01-01T00:00:00Z"}}),
        *(candidate(f"for-{name}", name, **good) for name in ("without-pods", "without-policy", "down", "static", "nobody")),
    ]
    scene.kubectl("apply", send=together(candidates))


def candidate(name: str, channel: str, **spec: Any) -> dict[str, Any]:
    """A candidate with time enough, unless it says otherwise."""
    return thing("AdapterCandidate", name, {"channel": channel, "deadline": "10m", **spec})


# ---- said at once, by the API server


SOUND = {"channel": "adapters", "train": {"snapshot": {"last": "24h"}}}

REFUSED_AT_ONCE: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt field": (thing("AdapterCandidate", "c", {**SOUND, "dedline": "6h"}), 'unknown field "spec.dedline"'),
    "train and artifact both": (
        thing("AdapterCandidate", "c", {**SOUND, "artifact": {"uri": "file:///a", "digest": tiny_base().digest}}),
        "set exactly one of train or artifact",
    ),
    "neither train nor artifact": (thing("AdapterCandidate", "c", {"channel": "adapters"}), "set exactly one of train or artifact"),
    "an alias that is the base's served name": (
        thing("AdapterChannel", "c", channel("c", alias="tiny")),
        "alias must differ from base.name",
    ),
    "a name of 41 characters": (thing("AdapterCandidate", "c" * 41, SOUND), "has at most 40 lower-case letters, digits and dashes"),
}


@pytest.mark.parametrize(("sent", "says"), REFUSED_AT_ONCE.values(), ids=REFUSED_AT_ONCE)
def test_kubectl_apply_refuses_at_once(scene: Scene, sent: dict[str, Any], says: str) -> None:
    assert says in scene.refusal("apply", send=sent)


def test_an_edit_of_an_immutable_spec_is_refused_with_the_way_out(scene: Scene) -> None:
    patch = json.dumps({"spec": {"deadline": "7h"}})
    said = scene.refusal("patch", "adaptercandidate", "for-nobody", "--type=merge", f"--patch={patch}")
    assert "spec is immutable but for approval: create another AdapterCandidate" in said


def test_without_validation_a_misspelt_field_is_dropped_and_what_counts_is_what_is_shown(scene: Scene) -> None:
    scene.kubectl(
        "apply", "--validate=false", send=thing("AdapterCandidate", "unvalidated", {**SOUND, "channel": "nobody", "dedline": "1h"})
    )
    spec = scene.get("adaptercandidate", "unvalidated")["spec"]
    assert "dedline" not in spec
    assert spec["deadline"] == "6h"


def test_without_validation_a_misspelt_threshold_leaves_the_policy_incomplete_and_refused(scene: Scene) -> None:
    spec = world.policy().wire()
    spec["evidence"]["minCluster"] = spec["evidence"].pop("minClusters")
    said = scene.refusal("apply", "--validate=false", send=thing("GatePolicy", "misspelt", spec))
    assert "spec.evidence.minClusters: Required value" in said


# ---- said by the operator, in conditions


CHANNEL_SAYS = {
    "a pool label that matches no pod": ("without-pods", "NoPods", "no pod carries the label gatevalve.dev/pool=nobody; waiting for one"),
    "a policy that is missing": ("without-policy", "PolicyMissing", "create GatePolicy forgotten in this namespace"),
    "a pod that does not answer": ("down", "NoReachablePods", "no pod of the pool answers; waiting: "),
    "a rank above what the pods hold": (
        "high-rank",
        "CapacityExceeded",
        "pool-words: --max-lora-rank 16 is below spec.adapter.rank 32",
    ),
    "an engine without runtime LoRA": (
        "static",
        "RuntimeLoRADisabled",
        "pool-static: set VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora",
    ),
}


@pytest.mark.parametrize(("name", "reason", "says"), CHANNEL_SAYS.values(), ids=CHANNEL_SAYS)
def test_the_channel_waits_and_says(scene: Scene, name: str, reason: str, says: str) -> None:
    eventually(lambda: scene.condition("adapterchannel", name, "Ready")[0] == reason, f"{reason} on {name}")
    assert says in scene.condition("adapterchannel", name, "Ready")[1]


CANDIDATE_WAITS = {
    "for its channel": ("for-nobody", "ChannelMissing", "AdapterChannel nobody does not exist in this namespace; create it"),
    "for pods": ("for-without-pods", "ServingUnsettled", "no pod carries the label gatevalve.dev/pool=nobody"),
    "for a policy": ("for-without-policy", "ChannelNotReady", "create GatePolicy forgotten in this namespace"),
    "for a pod that answers": ("for-down", "ServingUnsettled", "no pod of the pool answers"),
    "for an engine that loads adapters": ("for-static", "RuntimeLoRADisabled", "set VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
}


@pytest.mark.parametrize(("name", "reason", "says"), CANDIDATE_WAITS.values(), ids=CANDIDATE_WAITS)
def test_the_candidate_waits(scene: Scene, name: str, reason: str, says: str) -> None:
    eventually(lambda: scene.condition("adaptercandidate", name, "Decided")[0] == reason, f"{reason} on {name}")
    assert says in scene.condition("adaptercandidate", name, "Decided")[1]
    assert scene.get("adaptercandidate", name)["status"]["state"] == "Queued"
    assert scene.jobs_of(name) == []


def test_a_round_without_fresh_items_waits_before_a_job_or_test_is_paid_and_goes_on_when_there_is_traffic(
    scene: Scene, tmp_path: Path
) -> None:
    says = f"suite target: 0 fresh conversations of the sealed side, of which word-problems has an answer to 0, {CAPTURED} are needed"
    scene.kubectl("apply", send=candidate("thirsty", "captured", **scene.artifact("good")))
    eventually(lambda: scene.condition("adaptercandidate", "thirsty", "Decided")[0] == "ItemSupply", "it waits for items")
    assert scene.condition("adaptercandidate", "thirsty", "Decided")[1].startswith(says)
    assert scene.get("adaptercandidate", "thirsty")["status"]["state"] == "Drawing"
    eventually(lambda: scene.condition("adapterchannel", "captured", "RoundWaiting")[0] == "ItemSupply", "the channel says so")
    assert scene.condition("adapterchannel", "captured", "RoundWaiting")[1].startswith(says)
    assert all("-draw-" in job for job in scene.jobs_of("thirsty"))
    uid = scene.get("adapterchannel", "captured")["metadata"]["uid"]
    asked = [reply(number, messages=list(item.messages)) for number, item in enumerate(word_problems.stream(1500, seed=3))]
    segment = write_segment(tmp_path, asked)
    scene.copy_in(f"{traffic_dir(uid)}/{segment.parent.name}", segment.parent)
    eventually(lambda: any("-evaluate-" in job for job in scene.jobs_of("thirsty")), "it goes on to its evaluation")
    assert scene.condition("adapterchannel", "captured", "RoundWaiting")[0] == "AsExpected"
    scene.kubectl("delete", "adaptercandidate", "thirsty")


def test_a_second_channel_of_the_same_alias_is_told_who_holds_it(scene: Scene) -> None:
    eventually(lambda: scene.condition("adapterchannel", "adapters", "Ready")[0] == "AsExpected", "the first is served")
    scene.apply("AdapterChannel", "twin", channel("twin", alias="adapters"))
    eventually(lambda: scene.condition("adapterchannel", "twin", "Ready")[0] == "AliasConflict", "AliasConflict on twin")
    assert "channel adapters holds alias adapters on pool words" in scene.condition("adapterchannel", "twin", "Ready")[1]
    assert scene.condition("adapterchannel", "adapters", "Ready")[0] == "AsExpected"


ENDS = {
    **{
        f"{sentence}: Errored": (directory, "Errored", "ContractBroken", BAD_ADAPTERS[sentence].says)
        for directory, sentence in ON_THE_RIG.items()
    },
    "a wrong digest: Errored": ("wrong-digest", "Errored", "ContractBroken", "artifact.digest: .*copy it again or correct the digest"),
    "an artifact that is not there: Errored": ("not-there", "Errored", "ContractBroken", r"artifact\.uri: .* is not a directory; mount it"),
    "an artifact that Jobs may not read: Errored": (
        "closed",
        "Errored",
        "ContractBroken",
        r"artifact\.uri: .* cannot be read: Permission denied; let the user that Jobs run as",
    ),
    "too few rows: Skipped": ("silence", "Skipped", "NoSignal", "0 of 0 rows carry a score, 16 are needed .*; widen the window or send"),
    "no spread in the rewards: Skipped": (
        "all-alike",
        "Skipped",
        "NoSignal",
        "0 replies whose score differs from the mean .*; take a longer",
    ),
    "parameters of another recipe: Errored": (
        "mistaken",
        "Errored",
        "ContractBroken",
        r"spec\.train\.parameters\.clipLow: is no parameter of SFT; use epochs",
    ),
    "a window in the future: Errored": (
        "far-future",
        "Errored",
        "ContractBroken",
        r"spec\.train\.snapshot\.to 2999-01-01T00:00:00Z lies in",
    ),
    "a policy that names a task which nobody installed: Errored": (
        "misspelt",
        "Errored",
        "ContractBroken",
        "task word-problms: is not installed in the trainer image; .*name one of: exact-match, word-problems",
    ),
    "no node for its Job: Errored": ("unschedulable", "Errored", "DeadlineExceeded", "last seen: Job .*: Unschedulable: 0/1 nodes"),
    "no image for its Job: Errored": ("imageless", "Errored", "DeadlineExceeded", "last seen: Job .*: (ErrImagePull|ImagePullBackOff)"),
}


@pytest.mark.parametrize(("name", "state", "reason", "says"), ENDS.values(), ids=ENDS)
def test_the_candidate_ends(scene: Scene, name: str, state: str, reason: str, says: str) -> None:
    seen = scene.end_of(name)
    assert seen[:2] == (state, reason)
    assert re.search(says, seen[2]), seen[2]


@pytest.mark.parametrize("name", ["mistaken", "far-future"])
def test_what_is_of_no_use_starts_no_job(scene: Scene, name: str) -> None:
    scene.end_of(name)
    assert scene.jobs_of(name) == []


def test_what_a_test_would_miss_is_found_before_anything_is_fetched_or_paid(scene: Scene) -> None:
    scene.end_of("misspelt")
    assert [job.split("-")[-2] for job in scene.jobs_of("misspelt")] == ["draw"]
    assert [entry["spec"]["action"] for entry in scene.items("adapterreleases") if entry["spec"]["channel"]["name"] == "misspelt"] == [
        "Open"
    ]


def test_evidence_that_never_comes_is_inconclusive_also_where_every_name_is_as_long_as_may_be(scene: Scene) -> None:
    assert len(LONG_CHANNEL) == len(LONG_CANDIDATE) == 40
    state, reason, message = scene.end_of(LONG_CANDIDATE)
    assert (state, reason in ("DeadlineExceeded", "EvidenceFailed")) == ("Inconclusive", True)
    assert re.search("last seen: Job .*: (ErrImagePull|ImagePullBackOff)", message), message
    entries = [entry["spec"]["action"] for entry in scene.items("adapterreleases") if entry["spec"]["channel"]["name"] == LONG_CHANNEL]
    assert sorted(entries) == ["Open", "Reject", "Test"]


def test_a_reason_in_any_script_is_kept_in_the_log_and_its_chain_holds(scene: Scene) -> None:
    who = json.loads(scene.kubectl("auth", "whoami", "--output", "json"))["status"]["userInfo"]["username"]
    reason = "schlechter für Kunden ★ 以前より悪い \u202e"
    pin = json.dumps({"spec": {"pin": {"entry": "imageless-000000", "reason": reason, "by": who}}})
    scene.end_of("imageless")
    scene.kubectl("patch", "adapterchannel", "imageless", "--type=merge", f"--patch={pin}")
    eventually(lambda: scene.get("adapterrelease", "imageless-000001"), "the rollback entry")
    assert reason in scene.get("adapterrelease", "imageless-000001")["spec"]["message"]
    assert scene.condition("adapterchannel", "imageless", "LogValid")[0] == "AsExpected"


# ---- many at once


def test_five_hundred_candidates_are_all_told_why_they_wait_while_other_channels_are_served(scene: Scene) -> None:
    crowd = [
        thing("AdapterCandidate", f"crowd-{number:03d}", {"channel": "crowd", "train": {"snapshot": {"last": "1h"}}})
        for number in range(CROWD)
    ]
    scene.kubectl("create", send=together(crowd))
    scene.apply("AdapterChannel", "newcomer", channel("newcomer"))
    eventually(lambda: scene.condition("adapterchannel", "newcomer", "Ready")[0] == "AsExpected", "another channel is served", 60)
    eventually(lambda: sum(reasons_of_the_crowd(scene).values()) == CROWD, "every candidate has a condition", 120)
    assert reasons_of_the_crowd(scene) == {"ChannelPaused": 1, "BehindAnother": CROWD - 1}
    assert scene.condition("adaptercandidate", "crowd-000", "Decided") == ("ChannelPaused", "spec.paused is true; set it to false to go on")
    assert scene.condition("adaptercandidate", "crowd-499", "Decided") == ("BehindAnother", "an older candidate goes first")
    assert memory_mib(scene) < 512


def test_of_five_hundred_candidates_the_oldest_goes_first(scene: Scene) -> None:
    scene.kubectl("patch", "adapterchannel", "crowd", "--type=merge", '--patch={"spec": {"paused": false}}')
    assert scene.end_of("crowd-000")[:2] == ("Skipped", "NoSignal")
    assert scene.end_of("crowd-001")[:2] == ("Skipped", "NoSignal")
    assert scene.get("adaptercandidate", "crowd-499")["status"]["state"] == "Queued"
    scene.kubectl("patch", "adapterchannel", "crowd", "--type=merge", '--patch={"spec": {"paused": true}}')


def reasons_of_the_crowd(scene: Scene) -> dict[str, int]:
    """How many of the crowd wait for which reason."""
    counted: dict[str, int] = {}
    for one in scene.items("adaptercandidates", "--field-selector", "spec.channel=crowd"):
        reason = next((c["reason"] for c in one.get("status", {}).get("conditions", []) if c["type"] == "Decided"), None)
        counted |= {reason: counted.get(reason, 0) + 1} if reason else {}
    return counted


def memory_mib(scene: Scene) -> float:
    """The operator's resident memory, as its metrics tell."""
    with scene.installation.cluster.port_forward(scene.installation.namespace, f"deployment/{OPERATOR}", 8080) as port:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    return float(re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE).group(1)) / 2**20  # type: ignore[union-attr]


# ---- and the alias


def test_after_all_of_it_every_alias_answers_from_the_base_and_no_adapter_ever_reached_the_pod(scene: Scene) -> None:
    space = scene.installation.namespace
    with scene.installation.cluster.port_forward(space, "pod/pool-words", PORT) as port:
        for name in SERVED:
            newest = "000001" if name == "imageless" else "000000"  # the pin, to the base
            assert answering(port, name) == f"{name}-{newest}"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/gatevalve/v1/channels/adapters", timeout=30) as told:
            assert json.loads(told.read()).get("adapters", []) == []
    promoted = [entry["metadata"]["name"] for entry in scene.items("adapterreleases") if entry["spec"]["action"] in ("Accept", "Promote")]
    assert promoted == []


def answering(port: int, alias: str) -> str:
    """The entry that a chat through the alias is answered from."""
    body = json.dumps({"model": alias, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.headers["x-gatevalve-release"])
