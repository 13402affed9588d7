"""The four kinds on a real API server: it accepts the good objects of the table and refuses the bad ones with readable messages."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract_table import OBJECTS, TABLE, cases, changed
from gatevalve.codegen.resources import RESOURCES
from gatevalve.contracts.kinds import AdapterReleaseSpec
from minicluster.cluster import Cluster
from minicluster.errors import CommandError

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"


class Api:
    """What the tests do to objects of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    def kubectl(self, *args: str, send: dict[str, Any] | None = None) -> str:
        """Run kubectl in the namespace, with an object on its standard input."""
        given = ("--filename", "-") if send else ()
        return self._cluster.kubectl(*args, *given, "--namespace", self._namespace, input=json.dumps(send) if send else None)

    def refusal(self, *args: str, send: dict[str, Any]) -> str:
        """What kubectl says when it must fail."""
        with pytest.raises(CommandError) as failure:
            self.kubectl(*args, send=send)
        return failure.value.stderr

    def renew(self, kind: str) -> None:
        """Put the table's good object of a kind in place of what may be there."""
        self.kubectl("delete", kind, OBJECTS[kind]["metadata"]["name"], "--ignore-not-found")
        self.kubectl("create", send=OBJECTS[kind])

    def get(self, kind: str) -> dict[str, Any]:
        """The table's object of a kind as the API server holds it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, OBJECTS[kind]["metadata"]["name"], "--output", "json"))
        return found

    def set_status(self, kind: str, status: dict[str, Any]) -> None:
        """Write a whole status."""
        patch = json.dumps({"status": status})
        self.kubectl("patch", kind, OBJECTS[kind]["metadata"]["name"], "--subresource=status", "--type=merge", f"--patch={patch}")


@pytest.fixture(scope="module")
def kinds(cluster: Cluster) -> Cluster:
    """The cluster with the four kinds."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", *(f"crd/{resource.plural}.gatevalve.dev" for resource in RESOURCES))
    return cluster


@contextmanager
def own_namespace(cluster: Cluster, name: str) -> Iterator[Api]:
    """A namespace for some tests of this module."""
    cluster.kubectl("create", "namespace", name)
    yield Api(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def empty(kinds: Cluster) -> Iterator[Api]:
    """A namespace without objects."""
    with own_namespace(kinds, "test-crds-empty") as api:
        yield api


@pytest.fixture(scope="module")
def edited(kinds: Cluster) -> Iterator[Api]:
    """A namespace in which each test renews the object that it changes."""
    with own_namespace(kinds, "test-crds-edited") as api:
        yield api


@pytest.fixture(scope="module")
def lived(kinds: Cluster) -> Iterator[Api]:
    """A namespace with one object of each kind that has been through everything."""
    with own_namespace(kinds, "test-crds-lived") as api:
        for kind in OBJECTS:
            api.renew(kind)
        for kind, status in TABLE["statuses"].items():
            api.set_status(kind, status)
        yield api


@pytest.mark.parametrize("case", cases("good"))
def test_the_api_server_accepts(empty: Api, case: dict[str, Any]) -> None:
    assert f"/{changed(case)['metadata']['name']} created" in empty.kubectl("create", "--dry-run=server", send=changed(case))


@pytest.mark.parametrize("case", cases("bad"))
def test_the_api_server_refuses(empty: Api, case: dict[str, Any]) -> None:
    said = empty.refusal("create", "--dry-run=server", send=changed(case))
    assert case["says"] in said
    assert case["field"] in said


@pytest.mark.parametrize("case", cases("updates"))
def test_of_an_object_that_exists(edited: Api, case: dict[str, Any]) -> None:
    edited.renew(case["kind"])
    before = edited.get(case["kind"])
    if "after" in case:
        before = changed(case["after"] | {"kind": case["kind"]}, before)
        edited.kubectl("replace", send=before)
        before = edited.get(case["kind"])
    if "says" in case:
        assert case["says"] in edited.refusal("replace", send=changed(case, before))
        assert edited.get(case["kind"])["spec"] == before["spec"]
    else:
        edited.kubectl("replace", send=changed(case, before))
        assert edited.get(case["kind"])["spec"] == changed(case, before)["spec"]


@pytest.mark.parametrize("kind", TABLE["statuses"])
def test_a_full_status_is_kept_whole(lived: Api, kind: str) -> None:
    assert lived.get(kind)["status"] == TABLE["statuses"][kind]


def test_an_entry_keeps_its_bytes_because_the_api_server_adds_nothing(lived: Api) -> None:
    written = AdapterReleaseSpec.parse(OBJECTS["AdapterRelease"]["spec"])
    kept = lived.get("AdapterRelease")["spec"]
    assert kept == OBJECTS["AdapterRelease"]["spec"]
    assert AdapterReleaseSpec.parse(kept).canonical() == written.canonical()


ENTRIES = [case for case in cases("good") if case.values[0]["kind"] == "AdapterRelease"]


@pytest.mark.parametrize("case", ENTRIES)
def test_every_kind_of_entry_keeps_its_bytes(empty: Api, case: dict[str, Any]) -> None:
    kept = json.loads(empty.kubectl("create", "--dry-run=server", "--output", "json", send=changed(case)))["spec"]
    assert kept == changed(case)["spec"]


def test_defaults_of_a_channel_are_written_down_at_creation(empty: Api) -> None:
    case = {"kind": "AdapterChannel", "remove": ["spec.training", "spec.evaluation"]}
    kept = json.loads(empty.kubectl("create", "--dry-run=server", "--output", "json", send=changed(case)))["spec"]
    assert kept["serving"] == {"pool": "support", "port": 8000, "minVerifiedPercent": 80, "drainSeconds": 30, "rolloutSeconds": 600}
    assert kept["training"] == {"recipe": "LoggedRL"}
    assert kept["capture"] == {"enabled": True, "learningPermille": 1000, "segmentSeconds": 60}
    assert (kept["approval"], kept["paused"]) == ("Automatic", False)


STORY = {
    "gpol": ("NAME PRIMARY ALPHA-BP TESTS AGE", "support-v1 target 500 10"),
    "achan": (
        "NAME ALIAS LIVE ADAPTER READY REASON PODS VERIFIED ROUND PIN AGE",
        "support support support-000007 support-3f2a9c1d True AsExpected 2 2 3",
    ),
    "acand": ("NAME CHANNEL STATE REASON ENTRY AGE", "support-0412 support Promoted GatePassed support-000006"),
    "arel": ("NAME ACTION REASON CANDIDATE SERVES RESTORES LIVE AGE", "support-000007 Promote GatePassed support-0412 support-3f2a9c1d"),
}


@pytest.mark.parametrize(("short_name", "story"), STORY.items(), ids=STORY)
def test_the_printed_columns_read_like_a_story(lived: Api, short_name: str, story: tuple[str, str]) -> None:
    header, row = (" ".join(line.split()) for line in lived.kubectl("get", short_name).splitlines())
    assert header == story[0]
    assert row.startswith(story[1])


def test_one_category_shows_all_four_kinds(lived: Api) -> None:
    shown = lived.kubectl("get", "gatevalve", "--output", "name").split()
    assert {line.split(".")[0] for line in shown} == {resource.kind.lower() for resource in RESOURCES}


SELECTORS = {
    "candidates of a channel in a state": ("acand", "spec.channel=support,status.state=Promoted", True),
    "candidates in another state": ("acand", "spec.channel=support,status.state=Rejected", False),
    "entries of a channel that promote": ("arel", "spec.channel.name=support,spec.action=Promote", True),
    "entries of another channel": ("arel", "spec.channel.name=billing", False),
}


@pytest.mark.parametrize(("kind", "selector", "found"), SELECTORS.values(), ids=SELECTORS)
def test_objects_can_be_selected_by_field(lived: Api, kind: str, selector: str, found: bool) -> None:
    assert bool(lived.kubectl("get", kind, "--field-selector", selector, "--output", "name")) == found


EXPLAINED = {
    "gpol.spec.suites.role": "Primary: must improve (exactly one).",
    "achan.spec.serving.drainSeconds": "Longest wait for requests in flight before an old adapter is unloaded.",
    "acand.spec.train.snapshot": "exactly one of last, from with to, or digest",
    "acand.status.conditions.reason": "Why, in one word",
    "arel.spec.serves": "What the alias answers from after this entry.",
}


@pytest.mark.parametrize(("path", "sentence"), EXPLAINED.items(), ids=EXPLAINED)
def test_kubectl_explain_tells_what_a_field_is(empty: Api, path: str, sentence: str) -> None:
    assert sentence in " ".join(empty.kubectl("explain", path).split())


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_kubectl_explain_shows_no_field_without_a_sentence(empty: Api, resource: Any) -> None:
    assert "<no description>" not in empty.kubectl("explain", resource.plural, "--recursive").lower()
    assert resource.description.split(":")[0] in " ".join(empty.kubectl("explain", resource.plural).split())
