"""Copies files named by pairs SOURCE=TARGET; run as a Job to put the demo's base and suites on their claims."""

import shutil
import sys
from pathlib import Path


def copy(source: Path, target: Path) -> None:
    """Copy a file, or every file of a mounted ConfigMap, and say so."""
    files = [source] if source.is_file() else sorted(path for path in source.iterdir() if path.is_file())
    for path in files:
        place = target / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        sys.stdout.write(f"{place} {place.stat().st_size} bytes\n")


if __name__ == "__main__":
    for pair in sys.argv[1:]:
        source, _, target = pair.partition("=")
        copy(Path(source), Path(target))
