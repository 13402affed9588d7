"""What the chart renders: which objects, with which rights, mounts and keys."""

import base64
import hashlib
import re
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from gatevalve.contracts import names
from gatevalve.engine.settings import Environment
from gatevalve.io.signing import Signer
from gatevalve_serving.config import Settings
from support.chart import NAMESPACE, Helm, Rendering, environment, mounts

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm

ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
POLICIES = (
    *("attempts", "claims", "endings", "keys", "persons", "pools", "releases", "sessions", "shells", "statuses", "tokens"),
    "workloads",
)
OPERATOR, POOL = "gatevalve-operator", "gatevalve-pool-support"
CRDS = Path(__file__).parents[3] / "crds"


def container(rendering: Rendering, deployment: str) -> dict[str, object]:
    found: dict[str, object] = rendering.pods()[deployment]["containers"][0]
    return found


def test_lint_finds_nothing(helm: Helm) -> None:
    result = helm.run("lint", "--strict", str(helm_chart()))
    assert result.returncode == 0, result.stdout


def helm_chart() -> Path:
    return CRDS.parent / "helm" / "gatevalve"


def test_the_plain_chart_is_an_operator_its_rights_its_keys_and_its_claims(plain: Rendering) -> None:
    assert plain.kinds() == {
        ("Deployment", OPERATOR),
        ("ServiceAccount", OPERATOR),
        ("ServiceAccount", "gatevalve-trainer"),
        ("Role", OPERATOR),
        ("RoleBinding", OPERATOR),
        ("Role", "gatevalve-editor"),
        ("Role", "gatevalve-viewer"),
        *((kind, f"{part}.{NAMESPACE}.gatevalve.dev") for kind in ADMISSION for part in POLICIES),
        ("Secret", names.SIGNING_SECRET),
        ("Secret", names.SEAL_SECRET),
        ("ConfigMap", names.KEYS_CONFIGMAP),
        *(("PersistentVolumeClaim", f"gatevalve-{area}") for area in ("data", "sealed", "log")),
        *(
            ("CustomResourceDefinition", f"{plural}.gatevalve.dev")
            for plural in (names.POLICIES, names.CHANNELS, names.CANDIDATES, names.RELEASES)
        ),
    }


def test_a_pool_adds_a_deployment_and_a_service(plain: Rendering, pooled: Rendering) -> None:
    assert pooled.kinds() - plain.kinds() == {("Deployment", POOL), ("Service", "support")}


def test_everything_but_the_shared_kinds_and_admission_lies_in_the_releases_namespace(pooled: Rendering) -> None:
    cluster_wide = {"CustomResourceDefinition", *ADMISSION}
    assert {found["metadata"].get("namespace") for found in pooled.manifests if found["kind"] not in cluster_wide} == {NAMESPACE}


def test_the_chart_installs_the_same_kinds_as_kubectl_would(plain: Rendering) -> None:
    for path in CRDS.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        assert plain.get("CustomResourceDefinition", crd["metadata"]["name"]) == crd


def test_the_kinds_can_be_left_to_another_release(helm: Helm) -> None:
    rendering = helm.render(values={"crds": {"install": False}})
    assert not any(kind == "CustomResourceDefinition" for kind, _ in rendering.kinds())


def test_what_would_be_lost_for_good_is_kept_on_uninstall(plain: Rendering) -> None:
    kept = {
        (found["kind"]) for found in plain.manifests if found["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {"CustomResourceDefinition", "Secret", "ConfigMap", "PersistentVolumeClaim"}
    for found in plain.manifests:
        if found["kind"] in kept:
            assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", found["metadata"]["name"]


# ---- rights


def test_the_role_has_no_wildcard_and_reads_no_secret(plain: Rendering) -> None:
    for rule in plain.get("Role", OPERATOR)["rules"]:
        words = [word for part in rule.values() for word in part]
        assert not any("*" in word for word in words)
        assert "secrets" not in words


def test_log_entries_can_be_created_and_never_changed_or_deleted(plain: Rendering) -> None:
    rules = plain.get("Role", OPERATOR)["rules"]
    verbs = {verb for rule in rules if "adapterreleases" in rule["resources"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "create"}


def test_only_the_operator_gets_an_api_token(pooled: Rendering) -> None:
    accounts = {
        found["metadata"]["name"]: found["automountServiceAccountToken"] for found in pooled.manifests if found["kind"] == "ServiceAccount"
    }
    assert accounts == {OPERATOR: False, "gatevalve-trainer": False}
    assert {name: pod["automountServiceAccountToken"] for name, pod in pooled.pods().items()} == {OPERATOR: True, POOL: False}


@pytest.mark.parametrize("deployment", [OPERATOR, POOL])
def test_every_pod_meets_pod_security_restricted(pooled: Rendering, deployment: str) -> None:
    pod = pooled.pods()[deployment]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 1000)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for found in pod["containers"]:
        assert found["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


# ---- keys


def data(rendering: Rendering, secret: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in rendering.get("Secret", secret)["data"].items()}


def test_the_signing_key_is_one_that_the_operator_can_sign_with(plain: Rendering, tmp_path: Path) -> None:
    for name, content in data(plain, names.SIGNING_SECRET).items():
        (tmp_path / name).write_bytes(content)
    signer = Signer.from_directory(tmp_path)
    assert signer.key_id == plain.get("Deployment", OPERATOR)["spec"]["template"]["metadata"]["annotations"]["gatevalve.dev/key-sha256"]


def test_secret_configmap_and_pods_agree_on_one_key(pooled: Rendering) -> None:
    certificate = data(pooled, names.SIGNING_SECRET)[names.CERTIFICATE_FILE]
    assert pooled.get("ConfigMap", names.KEYS_CONFIGMAP)["data"] == {names.CERTIFICATE_FILE: certificate.decode()}
    digest = f"sha256:{hashlib.sha256(certificate).hexdigest()}"
    assert environment(container(pooled, POOL))[names.ENV_KEY_SHA256] == digest


def test_seed_and_split_key_are_32_random_bytes_each_in_hex(plain: Rendering, pooled: Rendering) -> None:
    seal = data(plain, names.SEAL_SECRET)
    assert set(seal) == {names.SEAL_SEED_KEY, names.SEAL_SPLIT_KEY}
    assert all(re.fullmatch(rb"[0-9a-f]{64}", value) for value in seal.values())
    assert len({*seal.values(), *data(pooled, names.SEAL_SECRET).values()}) == 4


def test_keys_cannot_be_edited_in_place(plain: Rendering) -> None:
    assert [plain.get("Secret", name)["immutable"] for name in (names.SIGNING_SECRET, names.SEAL_SECRET)] == [True, True]


def test_a_secret_of_ones_own_is_used_and_none_is_rendered(helm: Helm, plain: Rendering) -> None:
    certificate = plain.get("ConfigMap", names.KEYS_CONFIGMAP)["data"][names.CERTIFICATE_FILE]
    own = helm.render(values={"signing": {"existingSecret": "own-key", "certificate": certificate}, "pool": {"enabled": True}})
    assert ("Secret", names.SIGNING_SECRET) not in own.kinds()
    assert own.get("ConfigMap", names.KEYS_CONFIGMAP)["data"][names.CERTIFICATE_FILE] == certificate
    volumes = {volume["name"]: volume for volume in own.pods()[OPERATOR]["volumes"]}
    assert volumes["signing"]["secret"]["secretName"] == "own-key"
    assert environment(container(own, POOL))[names.ENV_KEY_SHA256] == f"sha256:{hashlib.sha256(certificate.encode()).hexdigest()}"


# ---- operator


def test_the_operator_understands_the_environment_that_the_chart_gives_it(pooled: Rendering) -> None:
    read = Environment.read(environment(container(pooled, OPERATOR)))
    assert (read.place.data_claim, read.place.sealed_claim) == ("gatevalve-data", "gatevalve-sealed")
    assert (read.place.trainer_image, read.place.serving_image) == ("gatevalve/trainer:0.1.0", "gatevalve/serving:0.1.0")
    assert (read.place.models_host_path, read.place.models_claim, read.place.run_as_user) == ("/srv/models", None, 1000)
    assert (read.sealed_url, read.log_url) == ("file:///gatevalve/sealed", "file:///gatevalve/log")


def test_every_variable_of_the_operator_is_one_that_it_reads(helm: Helm) -> None:
    class Recorder(dict[str, str]):
        asked: ClassVar[set[str]] = set()

        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            self.asked.add(key)
            return super().get(key, default)

    values = {"models": {"existingClaim": "models"}, "pool": {"apiKey": {"existingSecret": "key"}}}
    given = Recorder(environment(container(helm.render(values=values), OPERATOR)))
    Environment.read(given)
    assert set(given) <= given.asked


def test_the_operator_sees_log_and_evidence_and_not_the_data(plain: Rendering) -> None:
    found = mounts(container(plain, OPERATOR))
    assert set(found) == {names.LOG_PATH, names.SEALED_PATH, "/gatevalve/signing", "/tmp"}
    assert (found[names.SEALED_PATH]["readOnly"], found[names.LOG_PATH].get("readOnly", False)) == (True, False)


def test_one_operator_runs_at_a_time(plain: Rendering) -> None:
    spec = plain.get("Deployment", OPERATOR)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_images_can_be_named_one_by_one(helm: Helm) -> None:
    named = helm.render(values={"images": {"operator": "r/o@sha256:1", "trainer": "r/t:2", "serving": "r/s:3"}, "pool": {"enabled": True}})
    assert container(named, OPERATOR)["image"] == "r/o@sha256:1"
    assert container(named, POOL)["image"] == "r/s:3"
    assert environment(container(named, OPERATOR))["GATEVALVE_TRAINER_IMAGE"] == "r/t:2"


# ---- claims


def test_claims_of_ones_own_are_used_and_none_are_rendered(helm: Helm) -> None:
    own = helm.render(
        values={"claims": {area: {"existingClaim": f"own-{area}"} for area in ("data", "sealed", "log")}, "pool": {"enabled": True}}
    )
    assert not any(kind == "PersistentVolumeClaim" for kind, _ in own.kinds())
    claimed = {
        name: {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
        for name, pod in own.pods().items()
    }
    assert claimed == {OPERATOR: {"own-log", "own-sealed"}, POOL: {"own-data"}}
    assert environment(container(own, OPERATOR))["GATEVALVE_DATA_CLAIM"] == "own-data"


def test_a_claim_takes_size_class_and_modes_from_the_values(helm: Helm) -> None:
    made = helm.render(values={"claims": {"log": {"size": "3Gi", "storageClass": "fast", "accessModes": ["ReadWriteOncePod"]}}})
    assert made.get("PersistentVolumeClaim", "gatevalve-log")["spec"] == {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "3Gi"}},
    }
    assert "storageClassName" not in made.get("PersistentVolumeClaim", "gatevalve-data")["spec"]


# ---- pool


def test_the_middleware_understands_the_environment_that_the_chart_gives_it(pooled: Rendering) -> None:
    read = Settings.from_environment(environment(container(pooled, POOL)))
    assert (read.pool, read.namespace, read.pod, read.pod_uid) == ("support", "metadata.namespace", "metadata.name", "metadata.uid")
    assert {str(path) for path in (read.pool_path, read.keys_path, read.cache_path)} <= set(mounts(container(pooled, POOL)))


def test_the_pool_serves_the_base_with_adapters_and_our_middleware(pooled: Rendering) -> None:
    args = container(pooled, POOL)["args"]
    assert args == [
        *("serve", "/models/tiny-words", "--served-model-name", "tiny-words", "--port", "8000"),
        *("--enable-lora", "--max-loras", "4", "--max-lora-rank", "16", "--max-cpu-loras", "8"),
        *("--shutdown-timeout", "45"),
        *("--middleware", "gatevalve_serving.middleware.Gatevalve"),
    ]
    assert environment(container(pooled, POOL))["VLLM_ALLOW_RUNTIME_LORA_UPDATING"].lower() == "true"


def test_the_pool_sees_data_documents_keys_and_models_and_nothing_sealed(pooled: Rendering) -> None:
    found = mounts(container(pooled, POOL))
    assert set(found) == {names.DATA_PATH, names.POOL_PATH, names.KEYS_PATH, names.CACHE_PATH, names.MODELS_PATH, "/dev/shm", "/tmp"}
    assert {path for path, mount in found.items() if mount.get("readOnly")} == {names.POOL_PATH, names.KEYS_PATH, names.MODELS_PATH}
    assert "sealed" not in str(pooled.pods()[POOL])


def test_the_pools_documents_are_the_operators_to_write(pooled: Rendering) -> None:
    documents = next(volume for volume in pooled.pods()[POOL]["volumes"] if volume["name"] == "documents")
    assert documents["configMap"] == {"name": names.pool_configmap("support"), "optional": True}
    assert ("ConfigMap", names.pool_configmap("support")) not in pooled.kinds()


def test_pods_and_service_are_found_by_the_pools_label(pooled: Rendering) -> None:
    labels = pooled.get("Deployment", POOL)["spec"]["template"]["metadata"]["labels"]
    assert labels[names.LABEL_POOL] == "support"
    assert pooled.get("Service", "support")["spec"]["selector"] == {names.LABEL_POOL: "support"}
    assert pooled.get("Service", "support")["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http"}]


def test_no_pod_gets_variables_of_services(pooled: Rendering) -> None:
    assert all(pod["enableServiceLinks"] is False for pod in pooled.pods().values())


def test_an_api_key_reaches_engine_and_operator_by_reference_only(helm: Helm) -> None:
    keyed = helm.render(values={"pool": {"enabled": True, "apiKey": {"existingSecret": "chat-key", "key": "token"}}})
    reference = {"secretKeyRef": {"name": "chat-key", "key": "token"}}
    for deployment, variable in ((OPERATOR, names.ENV_POOL_API_KEY), (POOL, "VLLM_API_KEY")):
        env = {item["name"]: item for item in keyed.pods()[deployment]["containers"][0]["env"]}
        assert env[variable]["valueFrom"] == reference


def test_a_pod_is_ready_by_the_middleware_and_alive_by_the_engine(pooled: Rendering) -> None:
    found = pooled.pods()[POOL]["containers"][0]
    paths = {probe: found[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/health", "readiness": "/gatevalve/readyz", "liveness": "/health"}


def test_a_pod_that_ends_has_time_to_finish_its_replies(pooled: Rendering) -> None:
    pod = pooled.pods()[POOL]
    args, pause = pod["containers"][0]["args"], pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause + int(args[args.index("--shutdown-timeout") + 1]) < pod["terminationGracePeriodSeconds"]


def test_numbers_in_names_stay_text(helm: Helm) -> None:
    named = helm.render(values={"pool": {"enabled": True, "name": "123", "service": {"name": "chat"}}})
    assert named.get("Deployment", "gatevalve-pool-123")["spec"]["template"]["metadata"]["labels"][names.LABEL_POOL] == "123"
    assert environment(container(named, "gatevalve-pool-123"))[names.ENV_POOL] == "123"


def test_the_gpu_example_asks_for_a_gpu_and_goes_where_there_is_one(helm: Helm) -> None:
    example = helm.render("--values", str(helm_chart() / "examples" / "gpu-pool.yaml"))
    pod = example.pods()[POOL]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    models = next(volume for volume in pod["volumes"] if volume["name"] == "models")
    assert models["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
