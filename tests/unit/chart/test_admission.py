"""Admission policies and team Roles as the chart renders them: bound to one namespace, closed by default, in step with the contracts."""

import re
from typing import Any

import pytest

from gatevalve.contracts import names
from gatevalve.contracts.reasons import Step
from support.chart import NAMESPACE, Helm, Manifest, Rendering

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
POD_NAME_BASE = 58
"""Kubernetes cuts the name of a Job so long before it adds five random characters for its Pod."""


def policies(rendering: Rendering) -> dict[str, Manifest]:
    """Every policy by its part."""
    found = (each for each in rendering.manifests if each["kind"] == POLICY)
    return {each["metadata"]["name"].partition(".")[0]: each for each in found}


def expression(policy: Manifest, part: str, name: str) -> str:
    """The CEL of a condition or variable."""
    return str(next(each["expression"] for each in policy["spec"][part] if each["name"] == name))


def pattern(policy: Manifest, part: str, name: str) -> str:
    """The first regular expression in a condition or variable."""
    found: list[str] = re.findall(r"matches\('([^']*)'\)", expression(policy, part, name))
    return found[0]


def test_every_policy_is_bound_to_the_releases_namespace_alone(plain: Rendering) -> None:
    for policy in policies(plain).values():
        name = policy["metadata"]["name"]
        assert name.endswith(f".{NAMESPACE}.gatevalve.dev")
        bound = {**plain.get(BINDING, name)["spec"]}
        assert bound.pop("paramRef", {"namespace": NAMESPACE})["namespace"] == NAMESPACE
        assert bound == {
            "policyName": name,
            "validationActions": ["Deny", "Audit"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
        }


def test_a_policy_that_cannot_be_evaluated_refuses(plain: Rendering) -> None:
    assert {policy["spec"]["failurePolicy"] for policy in policies(plain).values()} == {"Fail"}


def test_every_refusal_says_what_to_do_instead(plain: Rendering) -> None:
    messages = [each["message"] for policy in policies(plain).values() for each in policy["spec"]["validations"]]
    assert all(any(turn in message for turn in (": ", ". To ", "must be")) for message in messages)


def test_nobody_breaks_the_glass_unless_the_values_name_a_group(helm: Helm, plain: Rendering) -> None:
    named = helm.render(values={"admission": {"breakGlassGroups": ["ops", 'a"b']}})
    for part in policies(plain):
        assert expression(policies(plain)[part], "matchConditions", "not-break-glass").endswith("group in [])")
        assert expression(policies(named)[part], "matchConditions", "not-break-glass").endswith(r'group in ["ops","a\"b"])')


def test_the_policies_can_be_left_out(helm: Helm) -> None:
    rendering = helm.render(values={"admission": {"enabled": False}})
    assert not any(kind in (POLICY, BINDING) for kind, _ in rendering.kinds())


@pytest.mark.parametrize("candidate", ["a", "support-0412", "a123456789-123456789-123456789-123456789"])
@pytest.mark.parametrize("step", Step)
def test_jobs_of_candidates_and_their_pods_are_known_by_their_names(plain: Rendering, step: Step, candidate: str) -> None:
    job = names.job_name(candidate, "0123abcd-0000-4000-8000-000000000000", str(step), 12)
    found = policies(plain)
    assert re.search(pattern(found["attempts"], "matchConditions", "speaks-for-a-candidate"), job)
    for pod in (f"{f'{job}-'[:POD_NAME_BASE]}x7k2p", "gatevalve-operator-7b7cfdd986-g4s7f"):
        assert re.search(pattern(found["sessions"], "matchConditions", "ours"), pod)


@pytest.mark.parametrize("pod", ["gatevalve-pool-support-7b7cfdd986-g4s7f", "nightly-training-x7k2p", "my-gatevalve-operator-x"])
def test_other_pods_may_be_entered(plain: Rendering, pod: str) -> None:
    assert not re.search(pattern(policies(plain)["sessions"], "matchConditions", "ours"), pod)


def test_keys_and_documents_are_guarded_by_the_names_that_the_operator_uses(plain: Rendering) -> None:
    condition = expression(policies(plain)["keys"], "matchConditions", "ours")
    secrets, configmaps = re.findall(r"'(\^[^']*)'", condition)
    assert [name for name in (names.SIGNING_SECRET, names.SEAL_SECRET, "gatevalve-sealed", "own") if re.search(secrets, name)] == [
        names.SIGNING_SECRET,
        names.SEAL_SECRET,
    ]
    for name in (names.KEYS_CONFIGMAP, names.pool_configmap("support")):
        assert re.search(configmaps, name)
    assert not re.search(configmaps, "gatevalve-keys-2")


def test_the_label_that_makes_a_job_speak_for_a_candidate_is_the_operators(plain: Rendering) -> None:
    for part in ("attempts", "endings"):
        assert f"'{names.LABEL_CANDIDATE_UID}' in" in expression(policies(plain)[part], "matchConditions", "speaks-for-a-candidate")


def test_pods_of_pools_are_known_by_the_label_that_the_operator_looks_for(plain: Rendering) -> None:
    found = policies(plain)
    assert f"'{names.LABEL_POOL}' in" in expression(found["pools"], "matchConditions", "of-a-pool")
    assert f"[?'{names.LABEL_POOL}']" in expression(found["pools"], "variables", "same")
    assert found["shells"]["spec"]["paramKind"] == {"apiVersion": "v1", "kind": "Pod"}
    bound: Manifest = plain.get(BINDING, found["shells"]["metadata"]["name"])["spec"]["paramRef"]
    assert bound["selector"] == {"matchExpressions": [{"key": names.LABEL_POOL, "operator": "Exists"}]}
    assert bound["parameterNotFoundAction"] == "Allow"


def test_a_key_and_claims_of_ones_own_are_guarded(helm: Helm, plain: Rendering) -> None:
    certificate = plain.get("ConfigMap", names.KEYS_CONFIGMAP)["data"][names.CERTIFICATE_FILE]
    claims = {area: {"existingClaim": f"own-{area}"} for area in ("data", "sealed", "log")}
    found = policies(helm.render(values={"signing": {"existingSecret": "own.key", "certificate": certificate}, "claims": claims}))
    assert "gatevalve-seal|own[.]key" in expression(found["keys"], "matchConditions", "ours")
    assert "gatevalve-seal|own[.]key" in expression(found["workloads"], "variables", "secrets")
    for part in ("workloads", "claims"):
        assert expression(found[part], "variables", "claims") == "['own-sealed', 'own-log']"


# ---- Roles for people

READ = {"get", "list", "watch"}


def rights(rendering: Rendering, role: str) -> dict[str, set[str]]:
    """Verbs of a Role by resource."""
    found: dict[str, set[str]] = {}
    for rule in rendering.get("Role", role)["rules"]:
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_a_viewer_reads_what_happened_and_nothing_secret(plain: Rendering) -> None:
    found = rights(plain, "gatevalve-viewer")
    assert set(found) == {
        *(names.POLICIES, names.CHANNELS, names.CANDIDATES, names.RELEASES),
        *("jobs", "pods", "pods/log", "events", "configmaps"),
    }
    assert set().union(*found.values()) == READ


def test_an_editor_writes_policies_channels_and_candidates_and_no_entry(plain: Rendering) -> None:
    found, viewer = rights(plain, "gatevalve-editor"), rights(plain, "gatevalve-viewer")
    more = {resource: verbs - viewer[resource] for resource, verbs in found.items() if verbs != viewer[resource]}
    assert more == {kind: {"create", "update", "patch", "delete"} for kind in (names.POLICIES, names.CHANNELS, names.CANDIDATES)}


def test_subjects_of_the_values_are_bound(helm: Helm) -> None:
    bound = helm.render(
        values={"rbac": {"editors": [{"kind": "Group", "name": "team"}], "viewers": [{"kind": "ServiceAccount", "name": "ci"}]}}
    )
    assert bound.get("RoleBinding", "gatevalve-editor")["subjects"] == [
        {"kind": "Group", "name": "team", "apiGroup": "rbac.authorization.k8s.io"}
    ]
    assert bound.get("RoleBinding", "gatevalve-viewer")["subjects"] == [{"kind": "ServiceAccount", "name": "ci", "namespace": NAMESPACE}]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "everybody as break-glass group": ({"admission": {"breakGlassGroups": ["system:authenticated"]}}, "breakGlassGroups/0"),
    "every ServiceAccount as break-glass group": ({"admission": {"breakGlassGroups": ["system:serviceaccounts"]}}, "breakGlassGroups/0"),
    "policies misspelt": ({"admission": {"enable": False}}, "additional properties 'enable' not allowed"),
    "a subject without a kind": ({"rbac": {"editors": [{"name": "ada"}]}}, "missing property 'kind'"),
    "a subject of a kind that RBAC does not know": ({"rbac": {"viewers": [{"kind": "Team", "name": "a"}]}}, "value must be one of"),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_values_refused_with_a_readable_message(helm: Helm, values: dict[str, Any], message: str) -> None:
    assert message in helm.refusal(values)
