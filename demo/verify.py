"""The log verified with the tool that users have: kubectl gatevalve verify."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console

from demo.stage import CHANNEL, NAMESPACE, Stage


def verify_log(stage: Stage, console: Console) -> bool:
    """Run `kubectl gatevalve verify` and show what it says."""
    tool = Path(sys.executable).parent / "kubectl-gatevalve"
    command = [str(tool), "verify", CHANNEL, "--namespace", NAMESPACE, "--kubeconfig", str(stage.cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    console.print("$ kubectl gatevalve verify support", style="bold")
    console.print(done.stdout or done.stderr, markup=False)
    return done.returncode == 0
