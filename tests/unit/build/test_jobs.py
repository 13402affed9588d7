"""Manifests of Jobs: which paths and secrets each container sees, and that nothing of a channel's takes the place of the operator's own."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve.contracts.policy import GatePolicySpec, Items, TrafficItems
from support.world import ITEMS, World, channel_spec, digest, policy

ENV = [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "VLLM_HOST_IP", "value": "0.0.0.0"}, {"name": "HOME", "value": "/root"}]


def pod_of(step: str, rules: GatePolicySpec | None = None, **channel: Any) -> dict[str, Any]:
    """The Pod of a step's Job."""
    world = World(spec=channel_spec(**channel), policy=rules or policy())
    world.run()
    world.apply("monday")
    world.run()
    pod: dict[str, Any] = next(job for job in world.jobs.values() if job.view.step == step).manifest["spec"]["template"]["spec"]
    return pod


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in (*pod.get("initContainers", ()), *pod["containers"])}


def environments(step: str) -> dict[str, list[dict[str, Any]]]:
    """The environment of each container of a step's Job in a channel that sets ENV everywhere."""
    found = containers(pod_of(step, training={"pod": {"env": ENV}}, evaluation={"pod": {"env": ENV}}))
    return {name: container["env"] for name, container in found.items()}


def in_force(env: list[dict[str, Any]]) -> dict[str, Any]:
    """What the container sees: the last of each name."""
    return {item["name"]: item.get("value") for item in env}


def test_the_trainer_sees_the_channels_variables_and_our_own_in_force() -> None:
    env = environments("train")["train"]
    assert env[:3] == ENV
    assert in_force(env) | {"GATEVALVE_JOB": ""} == {
        "OMP_NUM_THREADS": "1",
        "VLLM_HOST_IP": "0.0.0.0",
        "HOME": "/tmp",
        "USER": "gatevalve",
        "GATEVALVE_JOB": "",
    }


def test_the_evaluation_engine_stays_on_the_loopback_whatever_the_channel_says() -> None:
    seen = in_force(environments("evaluate")["engine"])
    assert (seen["VLLM_HOST_IP"], seen["HOME"], seen["OMP_NUM_THREADS"]) == ("127.0.0.1", "/tmp", "1")


def test_containers_with_keys_see_nothing_of_the_channels_variables() -> None:
    seen = environments("evaluate") | environments("snapshot") | environments("draw")
    assert all("OMP_NUM_THREADS" not in in_force(seen[name]) for name in ("publish", "evaluate", "snapshot", "draw"))


def volumes_seen(step: str) -> dict[str, dict[str, bool]]:
    """Volumes of each container of a step, with whether they are read-only; /tmp is everyone's."""
    mounts = {name: container["volumeMounts"] for name, container in containers(pod_of(step)).items()}
    return {name: {item["name"]: item.get("readOnly", False) for item in found if item["name"] != "tmp"} for name, found in mounts.items()}


SEEN: dict[str, dict[str, dict[str, bool]]] = {
    "draw": {"draw": {"data": True, "sealed": False}},
    "snapshot": {"snapshot": {"data": False, "models": True}},
    "train": {"train": {"data": False, "models": True}},
    "evaluate": {
        "publish": {"data": False, "arms": False, "models": True},
        "engine": {"arms": True, "models": True, "shm": False},
        "evaluate": {"data": True, "sealed": False},
    },
}


@pytest.mark.parametrize("step", SEEN)
def test_a_container_sees_only_the_volumes_that_its_work_needs(step: str) -> None:
    assert volumes_seen(step) == SEEN[step]


def data_paths(step: str, rules: GatePolicySpec) -> dict[str, list[tuple[str, bool]]]:
    """Paths below the data area that each container of a step mounts under a policy, with whether they are read-only."""
    found = containers(pod_of(step, rules=rules))
    return {
        name: [(item["subPath"], item["readOnly"]) for item in container["volumeMounts"] if item["name"] == "data"]
        for name, container in found.items()
    }


CAPTURED = policy().model_copy(
    update={"suites": (policy().primary.model_copy(update={"items": Items(traffic=TrafficItems(min=ITEMS))}), *policy().suites[1:])}
)


@pytest.mark.parametrize("step", ["draw", "evaluate"])
def test_traffic_is_read_by_who_draws_items_and_only_for_a_policy_that_asks_for_it(step: str) -> None:
    assert data_paths(step, policy())[step] == [("suites", True)]
    assert data_paths(step, CAPTURED)[step] == [("suites", True), ("channel-1/traffic", True)]


def test_adapters_are_read_by_who_draws_only_where_an_arm_is_one() -> None:
    world = World(gain=0.5)
    world.run()
    for name in ("monday", "tuesday"):
        world.apply(name)
        world.run()
    drawn = [world.jobs[name].manifest["spec"]["template"]["spec"] for name in sorted(world.jobs) if "-draw-" in name]
    seen = [[item for item in containers(pod)["draw"]["volumeMounts"] if item.get("subPath", "").endswith("/adapters")] for pod in drawn]
    path = {"mountPath": "/gatevalve/data/channel-1/adapters", "subPath": "channel-1/adapters"}
    assert seen == [[], [{"name": "data", **path, "readOnly": True}]]


def test_training_never_sees_traffic() -> None:
    assert [path for path, _ in data_paths("train", CAPTURED)["train"] if "traffic" in path] == []


def test_the_engine_loads_its_arms_from_the_pods_own_directory() -> None:
    pod = pod_of("evaluate")
    args = containers(pod)["engine"]["args"]
    modules = [argument.partition("=")[2] for argument in args[args.index("--lora-modules") + 1 :]]
    assert modules
    assert all(path.startswith("/gatevalve/arms/") for path in modules)
    assert next(volume for volume in pod["volumes"] if volume["name"] == "arms") == {"name": "arms", "emptyDir": {}}


@pytest.mark.parametrize("step", ["draw", "snapshot", "train", "evaluate"])
def test_only_who_draws_and_evaluates_mounts_sealed_items_and_only_those_that_split_hold_keys(step: str) -> None:
    pod = pod_of(step)
    holders = {name: [item["name"] for item in each["env"] if "valueFrom" in item] for name, each in containers(pod).items()}
    both = ["GATEVALVE_SPLIT_KEY", "GATEVALVE_SEAL_SEED"]
    wanted = {"draw": both, "snapshot": both[:1], "evaluate": both}
    assert {name: keys for name, keys in holders.items() if keys} == ({step: wanted[step]} if step in wanted else {})
    assert any(volume["name"] == "sealed" for volume in pod["volumes"]) == (step in ("draw", "evaluate"))
    assert pod["automountServiceAccountToken"] is False
    assert pod.get("shareProcessNamespace", False) is False


def with_judge() -> GatePolicySpec:
    """The world's policy with a judge in place of the Guard's verifier."""
    spec = policy().wire()
    canaries = {"uri": "suites/canaries.jsonl", "digest": digest("canaries")}
    del spec["suites"][1]["verifier"]
    spec["suites"][1]["judge"] = {"url": "https://judge.example/v1", "model": "judge-70b", "canaries": canaries}
    return GatePolicySpec.parse(spec)


def test_only_the_evaluator_holds_a_judges_key_and_only_where_a_suite_has_a_judge() -> None:
    world = World(policy=with_judge())
    world.run()
    world.apply("monday")
    world.run()
    keys = {
        name: item["valueFrom"]
        for job in world.jobs.values()
        for name, each in containers(job.manifest["spec"]["template"]["spec"]).items()
        for item in each["env"]
        if item["name"] == "GATEVALVE_JUDGE_API_KEY"
    }
    assert keys == {"evaluate": {"secretKeyRef": {"name": "gatevalve-judge", "key": "api-key", "optional": True}}}
    assert "GATEVALVE_JUDGE_API_KEY" not in str(pod_of("evaluate"))
