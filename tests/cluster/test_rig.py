"""The rig behaves like the Kubernetes that the product will meet, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minicluster import Cluster, ClusterError, CommandError, preflight
from minicluster.cache import clusters_root
from minicluster.cluster import remove_directory
from minicluster.programs import MINI
from minicluster.toolchain import environment, find_toolchain

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _only_on_the_rig(cluster: Cluster) -> None:
    if not cluster.owned:
        pytest.skip("these tests are about the rig, not about other clusters")


def container(script: str, **fields: Any) -> Json:
    """A container of a shell image."""
    return {"name": "main", "image": "tool:1", "args": [script], **fields}


def pod(name: str, *containers: Json, **spec: Any) -> Json:
    spec = {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def python_pod(name: str, code: str, **spec: Any) -> Json:
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    return pod(name, {"name": "main", "image": "gatevalve/client:1", "args": ["-c", code], "env": env}, **spec)


def job(name: str, script: str, **spec: Any) -> Json:
    template = {"spec": pod(name, container(script))["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template, **spec}}


def claim(name: str, **spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def create(cluster: Cluster, namespace: str, *objects: Json) -> None:
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}), namespace=namespace)


def wait(cluster: Cluster, namespace: str, condition: str, target: str) -> None:
    cluster.kubectl("wait", f"--for={condition}", target, "--namespace", namespace, "--timeout=30s")


def wait_for_end(cluster: Cluster, namespace: str, name: str) -> str:
    """Wait until a Pod has succeeded and return what it wrote."""
    try:
        wait(cluster, namespace, "jsonpath={.status.phase}=Succeeded", f"pod/{name}")
    except CommandError as e:
        e.add_note(cluster.kubectl("describe", "pod", name, "--namespace", namespace) + cluster.logs(name, namespace=namespace))
        raise
    return cluster.logs(name, namespace=namespace)


def wait_for_restart(cluster: Cluster, namespace: str, name: str) -> None:
    wait(cluster, namespace, "jsonpath={.status.containerStatuses[0].restartCount}=1", f"pod/{name}")


def eventually(check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.2)


# ---- workloads ----


def test_exit_codes_decide_what_becomes_of_a_job(cluster: Cluster, namespace: str) -> None:
    policy = {"rules": [{"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [12]}}]}
    create(
        cluster,
        namespace,
        job("done", "echo '{\"rows\": 3}' > /dev/termination-log"),
        job("failed", "exit 3"),
        job("diverged", "exit 12", backoffLimit=6, podFailurePolicy=policy),
    )
    wait(cluster, namespace, "condition=Complete", "job/done")
    for name, reason, code in (("failed", "BackoffLimitExceeded", 3), ("diverged", "PodFailurePolicy", 12)):
        wait(cluster, namespace, "condition=Failed", f"job/{name}")
        conditions = cluster.get("job", name, namespace)["status"]["conditions"]
        assert reason in {c["reason"] for c in conditions if c["type"] == "Failed"}
        assert terminated(cluster, namespace, name)["exitCode"] == code
    assert terminated(cluster, namespace, "done")["message"] == '{"rows": 3}\n'


def terminated(cluster: Cluster, namespace: str, job_name: str) -> Json:
    pods = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-l", f"job-name={job_name}", "-o", "json"))["items"]
    assert len(pods) == 1
    state: Json = pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def test_native_sidecar_starts_first_and_ends_last(cluster: Cluster, namespace: str) -> None:
    shared = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    sidecar = container(
        "trap 'echo stopped >> /shared/log; exit 0' TERM; sleep 0.5; echo ready > /shared/ready; while :; do sleep 0.1; done",
        name="sidecar",
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["test", "-f", "/shared/ready"]}, "periodSeconds": 1},
        **shared,
    )
    host_path = cluster.dir / "volumes" / namespace
    main = container("cat /shared/ready; echo main ends >> /shared/log", **shared)
    volume = {"name": "shared", "hostPath": {"path": str(host_path), "type": "DirectoryOrCreate"}}
    create(cluster, namespace, pod("p", main, initContainers=[sidecar], volumes=[volume], terminationGracePeriodSeconds=5))
    assert wait_for_end(cluster, namespace, "p") == "ready\n"
    assert (host_path / "log").read_text() == "main ends\nstopped\n"


def test_readiness_follows_its_probe_and_liveness_restarts(cluster: Cluster, namespace: str) -> None:
    main = container(
        "touch /ready /alive; sleep 600",
        readinessProbe={"exec": {"command": ["test", "-f", "/ready"]}, "periodSeconds": 1, "failureThreshold": 1},
        livenessProbe={"exec": {"command": ["test", "-f", "/alive"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1},
    )
    create(cluster, namespace, pod("p", main, restartPolicy="Always"))
    wait(cluster, namespace, "condition=Ready", "pod/p")
    cluster.kubectl("exec", "p", "-n", namespace, "--", "rm", "/ready")
    wait(cluster, namespace, "condition=Ready=false", "pod/p")
    cluster.kubectl("exec", "p", "-n", namespace, "--", "rm", "/alive")
    wait_for_restart(cluster, namespace, "p")
    wait(cluster, namespace, "condition=Ready", "pod/p")


def test_killed_container_is_restarted_and_its_log_kept(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, pod("p", container("echo started; sleep 600"), restartPolicy="Always"))
    wait(cluster, namespace, "condition=Ready", "pod/p")
    cluster.kill_container("p", "main", namespace)
    wait_for_restart(cluster, namespace, "p")
    status = cluster.get("pod", "p", namespace)["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert cluster.logs("p", namespace=namespace, previous=True) == "started\n"


def test_exec_passes_input_output_and_exit_code(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, pod("p", container("sleep 600")))
    wait(cluster, namespace, "condition=Ready", "pod/p")
    assert cluster.kubectl("exec", "-i", "p", "-n", namespace, "--", "cat", input="some input") == "some input"
    with pytest.raises(CommandError, match="exit code 5") as failed:
        cluster.kubectl("exec", "p", "-n", namespace, "--", "sh", "-c", "exit 5")
    assert failed.value.returncode == 5


def test_unknown_image_cannot_be_pulled(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, pod("p", {"name": "main", "image": "misspelt:1"}))
    wait(cluster, namespace, "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull", "pod/p")


def test_gpus_are_scheduled_until_there_are_none(cluster: Cluster, namespace: str) -> None:
    def wants(gpus: int) -> Json:
        return container("sleep 600", resources={"limits": {"nvidia.com/gpu": gpus}})

    create(cluster, namespace, pod("fits", wants(6)))
    wait(cluster, namespace, "condition=Ready", "pod/fits")
    create(cluster, namespace, pod("waits", wants(3)))
    wait(cluster, namespace, "condition=PodScheduled=false", "pod/waits")
    conditions = cluster.get("pod", "waits", namespace)["status"]["conditions"]
    assert any("Insufficient nvidia.com/gpu" in c.get("message", "") for c in conditions)
    cluster.kubectl("delete", "pod", "fits", "-n", namespace, "--now")
    wait(cluster, namespace, "condition=Ready", "pod/waits")


# ---- configuration and identity ----


def test_config_map_change_reaches_a_running_pod(cluster: Cluster, namespace: str) -> None:
    mount = {"volumeMounts": [{"name": "config", "mountPath": "/config"}]}
    watcher = container("until grep -q second /config/rules; do sleep 0.1; done; cat /config/rules", **mount)
    create(
        cluster,
        namespace,
        config_map("rules", rules="first"),
        pod("p", watcher, volumes=[{"name": "config", "configMap": {"name": "rules"}}]),
    )
    wait(cluster, namespace, "jsonpath={.status.phase}=Running", "pod/p")
    changed = time.monotonic()
    create(cluster, namespace, config_map("rules", rules="second"))
    assert wait_for_end(cluster, namespace, "p").strip() == "second"
    assert time.monotonic() - changed < 10


ASK_THE_API = """
import json, os, ssl, urllib.error, urllib.request
directory = "/var/run/secrets/kubernetes.io/serviceaccount"
token, namespace = (open(f"{directory}/{n}").read() for n in ("token", "namespace"))
context = ssl.create_default_context(cafile=f"{directory}/ca.crt")
def status(kind):
    url = f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/{kind}"
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}), context=context).status
    except urllib.error.HTTPError as e:
        return e.code
print(json.dumps({kind: status(kind) for kind in ("configmaps", "secrets")}))
"""


def test_projected_token_may_do_what_its_role_says_and_no_more(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "role", "reader", "-n", namespace, "--verb=list", "--resource=configmaps")
    cluster.kubectl("create", "rolebinding", "reader", "-n", namespace, "--role=reader", f"--serviceaccount={namespace}:default")
    restricted = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "runAsNonRoot": True}
    create(cluster, namespace, python_pod("p", ASK_THE_API, securityContext=restricted))
    assert json.loads(wait_for_end(cluster, namespace, "p")) == {"configmaps": 200, "secrets": 403}


def test_restricted_pod_has_no_capabilities_and_a_read_only_root(cluster: Cluster, namespace: str) -> None:
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    script = "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; touch /x /tmp/x || echo refused; touch /work/x && echo written"
    main = container(script, securityContext=restricted, volumeMounts=[{"name": "work", "mountPath": "/work"}])
    user = {"runAsUser": 65532, "runAsNonRoot": True}
    create(cluster, namespace, pod("p", main, securityContext=user, volumes=[{"name": "work", "emptyDir": {}}]))
    output = wait_for_end(cluster, namespace, "p")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "refused", "written"):
        assert line in output


# ---- files ----


def test_state_of_clusters_is_invisible_but_for_the_pods_own_volumes(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, claim("mine"), claim("sealed"))
    for name in ("mine", "sealed"):
        wait(cluster, namespace, "jsonpath={.status.phase}=Bound", f"pvc/{name}")
    sealed = cluster.claim_path("sealed", namespace)
    (sealed / "items").write_text("secret")
    looking = container(
        f"ls -A {cluster.dir.parent}; cat {sealed}/items 2>/dev/null || echo not there; echo content > /mine/file",
        volumeMounts=[{"name": "mine", "mountPath": "/mine"}],
    )
    create(cluster, namespace, pod("p", looking, volumes=[{"name": "mine", "persistentVolumeClaim": {"claimName": "mine"}}]))
    assert wait_for_end(cluster, namespace, "p") == "not there\n"
    assert (cluster.claim_path("mine", namespace) / "file").read_text() == "content\n"


def test_host_files_cannot_be_changed(cluster: Cluster, namespace: str) -> None:
    victim = Path(__file__).parent / "made-by-a-pod"
    create(cluster, namespace, pod("p", container(f"touch {victim} /usr/made-by-a-pod; exit 0")))
    wait_for_end(cluster, namespace, "p")
    assert not victim.exists()
    assert not Path("/usr/made-by-a-pod").exists()


def test_deleting_a_claim_removes_its_directory(cluster: Cluster, namespace: str) -> None:
    create(cluster, namespace, claim("data"))
    wait(cluster, namespace, "jsonpath={.status.phase}=Bound", "pvc/data")
    path = cluster.claim_path("data", namespace)
    assert path.is_dir()
    cluster.kubectl("delete", "pvc", "data", "-n", namespace)
    eventually(lambda: not path.exists())


def test_volume_made_for_a_claim_is_bound_by_it(cluster: Cluster, namespace: str) -> None:
    path = cluster.volume(f"models-{namespace}", claim=f"{namespace}/models")
    create(cluster, namespace, claim("models", storageClassName="manual"))
    wait(cluster, namespace, "jsonpath={.status.phase}=Bound", "pvc/models")
    assert cluster.claim_path("models", namespace) == path


# ---- network ----

SERVE = """
import http.server, os, socket
assert socket.gethostbyname(socket.gethostname()) == os.environ["POD_IP"]
addresses = open("/proc/net/fib_trie").read()
assert f"{os.environ['POD_IP']}\\n           /32 host LOCAL" in addresses, addresses
http.server.HTTPServer((os.environ["POD_IP"], 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """A Service of one Pod, which serves the container's files from exactly its own address."""
    probe = {"httpGet": {"path": "/etc/hostname", "port": 8080}, "periodSeconds": 1}
    server = python_pod("web", SERVE)
    server["spec"]["containers"][0] |= {"readinessProbe": probe, "workingDir": "/"}
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    create(cluster, namespace, server, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    wait(cluster, namespace, "condition=Ready", "pod/web")
    return namespace


def test_service_is_reached_by_name_from_pods_and_through_the_api_from_the_host(cluster: Cluster, web: str) -> None:
    code = "import urllib.request; print(urllib.request.urlopen('http://web/etc/hostname').read().decode())"
    create(cluster, web, python_pod("client", code))
    assert wait_for_end(cluster, web, "client").strip() == "web"
    with cluster.port_forward(web, "svc/web", 80) as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/hostname") as reply:
        assert reply.read() == b"web\n"
    assert cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{web}/services/web:80/proxy/etc/hostname") == "web\n"


def test_port_forward_to_nothing_is_an_error(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ClusterError, match="not found"), cluster.port_forward(namespace, "pod/nobody", 80):
        pass


def test_helm_talks_to_the_cluster(cluster: Cluster, namespace: str) -> None:
    assert cluster.helm("version", "--template", "{{.Version}}").startswith("v4.")
    assert json.loads(cluster.helm("list", "--namespace", namespace, "--output", "json")) == []


# ---- life of a cluster ----

START_AND_WAIT = """
import sys, time
from minicluster import Cluster
Cluster.start(sys.argv[1], audit=True, gpus=0)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def second() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that starts another cluster beside the session's, and the cluster's directory."""
    name = f"second-{os.getpid()}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", START_AND_WAIT, name]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        try:
            yield owner, clusters_root() / name
        finally:
            owner.kill()


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that name a cluster's directory."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(directory) in line:
            lines.append(line)
    return lines


def test_two_clusters_run_side_by_side_and_each_ends_with_its_owner(cluster: Cluster, second: tuple[subprocess.Popen[str], Path]) -> None:
    owner, directory = second
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    other = Cluster.find(directory.name)
    assert other is not None
    assert other.api_server_url != cluster.api_server_url
    create(other, "default", config_map("only-here"))
    with pytest.raises(CommandError, match="NotFound"):
        cluster.get("configmap", "only-here", "default")
    assert "only-here" in (directory / "logs" / "audit.log").read_text()
    with pytest.raises(ClusterError, match="runs already"):
        Cluster.start(directory.name)
    owner.send_signal(signal.SIGKILL)
    eventually(lambda: not directory.exists())
    assert processes_of(directory) == []
    assert len(processes_of(cluster.dir)) >= 8


def test_killing_the_launcher_ends_every_process(second: tuple[subprocess.Popen[str], Path]) -> None:
    owner, directory = second
    eventually(lambda: any("kube-apiserver" in line for line in processes_of(directory)))
    os.kill(int((directory / "launcher.pid").read_text()), signal.SIGKILL)
    eventually(lambda: processes_of(directory) == [], seconds=5)
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()
    assert "did not start" in owner.communicate()[1]
    remove_directory(directory)


def test_machine_without_namespaces_is_told_so_before_anything_starts() -> None:
    command = f"echo 0 > /proc/sys/user/max_mnt_namespaces && exec {sys.executable} -m minicluster up --name refused-{os.getpid()}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    refused = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", command], env=env, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "the kernel refuses new namespaces" in refused.stderr
    assert not (clusters_root() / f"refused-{os.getpid()}").exists()


@pytest.mark.parametrize(
    ("sysctl", "value", "remedy"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_ordinary_user_is_told_which_sysctl_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sysctl: str, value: str, remedy: str
) -> None:
    (tmp_path / sysctl).parent.mkdir()
    (tmp_path / sysctl).write_text(value + "\n")
    monkeypatch.setattr("minicluster.machine._SYSCTLS", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert any(remedy in problem for problem in preflight())


def test_container_runtime_passes_its_own_tests() -> None:
    go = find_toolchain(print).go
    result = subprocess.run([go, "test", "./mini"], cwd=MINI.module, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
