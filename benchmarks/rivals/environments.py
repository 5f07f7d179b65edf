"""The engines that can be measured, and how the rivals' environments are made.

Each rival has a virtual environment of its own, `<environments>/<name>`. A build is made here, by
this machine's compiler, because what it is compiled for is what is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORKERS = Path(__file__).resolve().parent
DEFAULT = Path("~/.cache/forwardpass-rivals").expanduser()
OURS = "forwardpass"
_RECORD = "rival.json"
_PLAIN = ("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI")
_NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


@dataclass(frozen=True)
class Rival:
    """A row of the table: what is installed, what it is compiled with, and who speaks to it.

    `needs`: features, as Linux names them, without which it cannot run. `on_amx`: arguments of
    CMake that are added on processors with AMX.
    """

    name: str
    worker: str
    packages: tuple[str, ...]
    cmake: tuple[str, ...] = ()
    on_amx: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()

    def cmake_args(self, features: frozenset[str]) -> tuple[str, ...]:
        """What CMake is told on a machine with these features."""
        return self.cmake + (self.on_amx if "amx_tile" in features else ())

    def missing(self, features: frozenset[str]) -> str | None:
        """Why it cannot run on a machine with these features, or None."""
        lacks = sorted(self.needs - features)
        return f"this processor lacks {', '.join(lacks)}" if lacks else None


def _llama_cpp(build: str, *cmake: str, on_amx: tuple[str, ...] = (), needs: str = "") -> Rival:
    return Rival(
        f"llama.cpp-{build}",
        "llama_cpp_worker.py",
        ("llama-cpp-python==0.3.36",),
        cmake,
        on_amx,
        frozenset(needs.split()),
    )


def _flags(flags: str) -> tuple[str, str]:
    return f"-DCMAKE_C_FLAGS='{flags}'", f"-DCMAKE_CXX_FLAGS='{flags}'"


RIVALS = (
    _llama_cpp("avx512", "-DGGML_NATIVE=ON", on_amx=_flags(_NO_AMX), needs="avx512f avx512bw"),
    _llama_cpp(
        "avx2",
        "-DGGML_NATIVE=OFF",
        *(f"-DGGML_{name}=ON" for name in ("AVX", "AVX2", "FMA", "F16C", "BMI2")),
        *(f"-DGGML_{name}=OFF" for name in _PLAIN),
        needs="avx2 fma f16c bmi2",
    ),
    # Compilers drop the stores to its tile configuration, which only an instruction reads.
    _llama_cpp(
        "amx",
        "-DGGML_NATIVE=ON",
        *_flags("-fno-tree-dse -fno-dse"),
        needs="amx_tile amx_int8 avx512_vnni",
    ),
    Rival("openvino", "openvino_worker.py", ("openvino-genai",)),
    Rival(
        "transformers",
        "transformers_worker.py",
        ("torch==2.13.0", "transformers>=5.0", "gguf>=0.18", "accelerate"),
    ),
)
NAMES = (OURS, *(rival.name for rival in RIVALS))


def rival(name: str) -> Rival:
    """The row of that name."""
    return next(row for row in RIVALS if row.name == name)


def cpu_features() -> frozenset[str]:
    """Linux's names of what the processor can do."""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def command(name: str, environments: Path) -> tuple[str, ...]:
    """What starts the worker of that engine; ours runs in this interpreter's environment."""
    if name == OURS:
        return sys.executable, str(WORKERS / "forwardpass_worker.py")
    return str(environments / name / "bin" / "python"), str(WORKERS / rival(name).worker)


def absent(name: str, environments: Path) -> str | None:
    """Why that engine cannot be measured here, or None."""
    if name == OURS:
        return None
    if reason := rival(name).missing(cpu_features()):
        return reason
    if not (environments / name / _RECORD).is_file():
        return f"not set up in {environments}"
    return None


def record(name: str, environments: Path) -> dict[str, object]:
    """What `set_up` noted: arguments of CMake, and the packages with their versions."""
    path = environments / name / _RECORD
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def set_up(row: Rival, environments: Path, jobs: int) -> str:
    """Makes one environment anew where it is not whole; says in a line what came of it."""
    features = cpu_features()
    if reason := row.missing(features):
        return f"{row.name}: skipped, {reason}"
    folder = environments / row.name
    if (folder / _RECORD).is_file():
        return f"{row.name}: is there"
    args = row.cmake_args(features)
    compiled = [package.partition("==")[0] for package in row.packages if args]
    options = [f"--no-binary={package}" for package in compiled]
    # A wheel that another build left in pip's cache has other flags.
    options += ["--no-cache-dir"] if compiled else []
    variables = {"CMAKE_ARGS": " ".join(args), "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    python = str(folder / "bin" / "python")
    for step in (
        (sys.executable, "-m", "venv", "--clear", str(folder)),
        (python, "-m", "pip", "install", "-q", *options, *row.packages),
    ):
        done = subprocess.run(
            step, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return f"{row.name}: failed, {last}"
    write_record(row, folder, args)
    return f"{row.name}: made in {folder}"


def write_record(row: Rival, folder: Path, args: tuple[str, ...]) -> None:
    """Notes what the environment holds; without this file it counts as not made."""
    freeze = (str(folder / "bin" / "python"), "-m", "pip", "freeze", "-q")
    packages = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.split("\n")
    noted = {"cmake": list(args), "packages": [package for package in packages if package]}
    (folder / _RECORD).write_text(json.dumps(noted, indent=1) + "\n", "utf-8")
