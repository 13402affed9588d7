"""The chart on a real cluster: install, upgrade and uninstall keep what must be kept, and the operator may do what it needs and no more."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_table import OBJECTS
from gatevalve.contracts import names
from minicluster.cluster import Cluster
from support.chart import CHART
from support.installation import OPERATOR, Installation

pytestmark = pytest.mark.cluster

RESTRICTED = ("pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Installation]:
    """The chart, installed where Pod Security refuses what is not restricted, and taken away again."""
    installation = Installation(cluster, "test-chart")
    cluster.kubectl("create", "namespace", installation.namespace)
    cluster.kubectl("label", "namespace", installation.namespace, *RESTRICTED)
    installation.helm("install")
    yield installation
    installation.uninstall("--ignore-not-found")
    cluster.kubectl("delete", "namespace", installation.namespace, "--wait=false")


def test_the_operator_gets_ready(release: Installation) -> None:
    release.await_operator()
    pods = json.loads(release.kubectl("get", "pods", "--selector=app.kubernetes.io/component=operator", "--output=json"))["items"]
    assert [pod["status"]["phase"] for pod in pods if "deletionTimestamp" not in pod["metadata"]] == ["Running"]


def test_the_four_kinds_are_served(release: Installation) -> None:
    release.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    served = json.loads(release.cluster.kubectl("get", "--raw", f"/apis/{names.API_VERSION}"))["resources"]
    kinds = {names.POLICIES, names.CHANNELS, names.CANDIDATES, names.RELEASES}
    assert {resource["name"] for resource in served if "/" not in resource["name"]} == kinds


ALLOWED = [
    "create adapterreleases.gatevalve.dev",
    "watch adaptercandidates.gatevalve.dev",
    "patch adapterchannels.gatevalve.dev --subresource=status",
    "create jobs.batch",
    "delete jobs.batch",
    "patch pods",
    "patch configmaps/gatevalve-pool-support",
    "create events",
]
FORBIDDEN = [
    "update adapterreleases.gatevalve.dev",
    "patch adapterreleases.gatevalve.dev",
    "delete adapterreleases.gatevalve.dev",
    "patch gatepolicies.gatevalve.dev",
    "patch adapterchannels.gatevalve.dev",
    "create adaptercandidates.gatevalve.dev",
    "get secrets",
    "create pods",
    "create pods --subresource=exec",
    "delete configmaps",
    "create roles.rbac.authorization.k8s.io",
    "get nodes",
]


@pytest.mark.parametrize("what", ALLOWED)
def test_the_operator_may(release: Installation, what: str) -> None:
    assert may(release, OPERATOR, what)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_operator_may_not(release: Installation, what: str) -> None:
    assert not may(release, OPERATOR, what)


def test_what_runs_in_jobs_may_nothing(release: Installation) -> None:
    assert not any(may(release, "gatevalve-trainer", what) for what in ALLOWED)


def may(release: Installation, account: str, what: str) -> bool:
    who = f"--as=system:serviceaccount:{release.namespace}:{account}"
    return release.kubectl("auth", "can-i", *what.split(), who, check=False).strip() == "yes"


@pytest.mark.parametrize("values", [CHART / "values.yaml", CHART / "examples" / "gpu-pool.yaml"], ids=lambda path: path.stem)
def test_a_pool_is_accepted_as_restricted_without_a_warning(release: Installation, values: Path) -> None:
    chosen = ("--values", str(values), "--set", "pool.enabled=true", "--show-only", "templates/pool.yaml")
    rendered = release.cluster.helm("template", "gatevalve", str(CHART), "--namespace", release.namespace, *chosen)
    created = release.cluster.kubectl("create", "--dry-run=server", "--warnings-as-errors", "--filename", "-", input=rendered)
    assert "deployment.apps/gatevalve-pool-support created" in created


def test_an_upgrade_keeps_every_key(release: Installation) -> None:
    before = release.keys()
    release.helm("upgrade", operator={"resources": {"requests": {"cpu": "60m"}}})
    assert release.keys() == before
    deployment = release.cluster.get("deployment", OPERATOR, release.namespace)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "60m"
    release.await_operator()


def test_another_namespace_gets_a_release_without_the_kinds(release: Installation, namespace: str) -> None:
    other = Installation(release.cluster, namespace)
    rendered = other.helm("install", "--dry-run=server", crds={"install": False})
    assert "kind: CustomResourceDefinition" not in rendered
    assert release.keys()["keys"]["tls.crt"].splitlines()[1] not in rendered


def test_uninstalling_leaves_the_log_and_a_new_install_goes_on_with_it(release: Installation) -> None:
    # The last test of this module: it takes the release away.
    release.break_glass("create", send=OBJECTS["AdapterRelease"])
    keys, entry = release.keys(), release.cluster.get("arel", "support-000007", release.namespace)
    log = release.cluster.get("pvc", "gatevalve-log", release.namespace)
    release.uninstall("--wait")
    assert release.kubectl("get", "deployments,roles,serviceaccounts", "--selector=app.kubernetes.io/name=gatevalve", "--output=name") == ""
    release.helm("install")
    assert release.keys() == keys
    assert release.cluster.get("arel", "support-000007", release.namespace)["spec"] == entry["spec"]
    assert release.cluster.get("pvc", "gatevalve-log", release.namespace)["metadata"]["uid"] == log["metadata"]["uid"]
    release.await_operator()
