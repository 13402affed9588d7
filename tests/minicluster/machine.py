"""What a machine must offer before a cluster can run on it, each with its remedy."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

_NAMESPACES = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
_USER_NAMESPACE = ["--user", "--map-root-user"]
_SYSCTLS = Path("/proc/sys")
_USER_NAMESPACE_SYSCTLS = {
    "kernel/unprivileged_userns_clone": ("0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    "user/max_user_namespaces": ("0", "sudo sysctl -w user.max_user_namespaces=15000"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
}


def preflight() -> list[str]:
    """Return the reasons why no cluster can run here, each with what to do; empty if one can."""
    if platform.system() != "Linux":
        return ["the rig needs Linux: use a Linux machine or virtual machine, or point --kubeconfig at another cluster"]
    if missing := [tool for tool in ("mount", "umount", "unshare") if shutil.which(tool) is None]:
        return [f"{', '.join(missing)} not found: install util-linux (and mount, where that is a package of its own)"]
    if os.geteuid() == 0:
        return _namespace_problems(_NAMESPACES, "run it on a machine or in a container with CAP_SYS_ADMIN (docker run --privileged)")
    return _sysctl_problems() or _namespace_problems(
        _USER_NAMESPACE + _NAMESPACES, "allow user namespaces for ordinary users, or run as root"
    )


def _sysctl_problems() -> list[str]:
    problems = []
    for name, (bad, remedy) in _USER_NAMESPACE_SYSCTLS.items():
        file = _SYSCTLS / name
        if file.exists() and file.read_text().strip() == bad:
            problems.append(f"{name.replace('/', '.')} is {bad}, so ordinary users have no user namespaces: {remedy}, or run as root")
    return problems


def _namespace_problems(flags: list[str], remedy: str) -> list[str]:
    """Try namespaces with a mount in them, as a cluster uses them."""
    result = subprocess.run(["unshare", *flags, "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, text=True)
    if result.returncode == 0:
        return []
    return [f"the kernel refuses new namespaces ({result.stderr.strip()}): {remedy}"]
