"""`make demo`: sets the stage with visible progress, tells the story, and writes demo/out/demo.json from what happened."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

REPO = Path(__file__).parent.parent
sys.path.insert(0, str(REPO / "tests"))

from demo.stage import CHANNEL, NAMESPACE, Stage, StoryError  # noqa: E402
from demo.story import Outcome, Story  # noqa: E402
from demo.verify import verify_log  # noqa: E402
from minicluster import Cluster, ClusterError, product_images  # noqa: E402

PLAIN_WIDTH = 140
OUT = REPO / "demo" / "out" / "demo.json"


def main() -> int:
    """Command line of the demo."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="tell the story on this cluster instead of the rig")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running to look around in it")
    args = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    try:
        return _tell(console, args.kubeconfig, args.keep)
    except (StoryError, ClusterError) as error:
        console.print(Panel(str(error), title="the demo cannot go on", border_style="red"), markup=False)
        return 1


def _tell(console: Console, kubeconfig: Path | None, keep: bool) -> int:
    started = time.monotonic()
    console.print(Panel("gatevalve: when an adapter may serve, proven, and taken back in a second", border_style="cyan"))
    cluster = _cluster(console, kubeconfig, keep)
    stage = Stage(cluster, console)
    stage.seconds["cluster"] = round(time.monotonic() - started, 1)
    try:
        story = _play(console, stage)
        stage.seconds["total"] = round(time.monotonic() - started, 1)
        _write(story.outcome, stage)
        _close(console, cluster, keep)
    finally:
        if not keep:
            _leave(stage)
    return _judge(console, story.outcome)


def _cluster(console: Console, kubeconfig: Path | None, keep: bool) -> Cluster:
    if kubeconfig is not None:
        return Cluster.attach(kubeconfig)
    console.print("a real control plane and a node on this machine (binaries are built once and cached)")
    return Cluster.start("demo", images=product_images(REPO, REPO / ".venv"), detached=keep)


def _play(console: Console, stage: Stage) -> Story:
    story = Story(stage)
    console.rule("setting the stage")
    with stage.step("helm install gatevalve", "install"):
        stage.install()
    with stage.step("kubectl apply GatePolicy and AdapterChannel; vLLM starts and answers the alias from the base", "engine"):
        stage.open_channel()
        stage.wait_for_pool()
    console.rule("honest days")
    story.honest_days()
    console.rule("poisoned days")
    story.poisoned_days()
    console.rule("going round the gate")
    story.bypass_attempts()
    console.rule("the way back")
    story.way_back()
    console.rule("the log")
    console.print(story.log())
    story.outcome.chain_ok = verify_log(stage, console)
    console.print(story.summary())
    return story


def _leave(stage: Stage) -> None:
    """Stop the rig; on a cluster of somebody else take away what the demo put there."""
    if not stage.cluster.owned:
        stage.uninstall()
    stage.cluster.stop()


def _judge(console: Console, outcome: Outcome) -> int:
    """What the story must have shown; each line says what it did not."""
    broken = outcome.broken_promises()
    for promise in broken:
        console.print(f"[red]not seen:[/] {promise}")
    return 1 if broken else 0


def _write(outcome: Outcome, stage: Stage) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({**asdict(outcome), "seconds": stage.seconds}, indent=1) + "\n")
    stage.console.print(f"written: {OUT.relative_to(REPO)}")


def _close(console: Console, cluster: Cluster, keep: bool) -> None:
    if keep:
        lines = [
            f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.kubectl_bin.parent}:{REPO / '.venv' / 'bin'}:$PATH",
            f"kubectl get acand,arel,achan --namespace {NAMESPACE}; kubectl gatevalve history {CHANNEL}",
            "make cluster-down ARGS='--name demo'   # when you are done",
        ]
        console.print(Panel("\n".join(lines), title="look around"), soft_wrap=True)
        return
    console.print(Panel("make demo ARGS=--keep leaves the cluster running; make test proves what you saw", title="next"))


if __name__ == "__main__":
    raise SystemExit(main())
