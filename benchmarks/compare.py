"""Compare `migrate-pallas` with other codemod tools, as whole processes on pinned public packages.

    python benchmarks/compare.py                 this tool and its peers, alternating, in one run
    python benchmarks/compare.py --growth        time and memory as a tree grows
    python benchmarks/compare.py --start-up      the time until the command line is there
    python benchmarks/compare.py --exhaustive    the same results without shortcuts

Each prints Markdown. README.md, beside this file, tells how to read it.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import cycle, islice
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests")]

from processes import Timed, Watched, timed, watched  # noqa: E402
from public_packages import PACKAGES, cache, wheel  # noqa: E402

NAMES = ("jax", "tpu-inference", "tokamax", "ejkernel")
PEERS = HERE / "peers"
MIGRATE = (sys.executable, "-m", "migrate_pallas")
MIGRATE_CHECK = (*MIGRATE, "--to=cpu", "--check")


@dataclass(frozen=True)
class Contender:
    """A command to run on a directory, which is to be its last argument.

    `is_ours` tells that it is this tool, which prints no calls, and runs again after each cold run.
    """

    name: str
    command: tuple[str, ...]
    is_ours: bool = False


@dataclass(frozen=True)
class Row:
    """What a contender took: seconds of each cold run and of each run after it, bytes, and calls found.

    `processor` are the seconds of all its processes together, in each run.
    """

    name: str
    cold: tuple[float, ...]
    again: tuple[float, ...]
    processor: tuple[float, ...]
    first: int
    together: int
    found: int | None


def peers_environment() -> Path:
    """A virtual environment with the pinned peers, which is made once and kept beside the downloads.

    Raises `subprocess.CalledProcessError` where they can't be installed.
    """
    requirements = HERE / "requirements.txt"
    key = f"{sys.version}{sys.executable}{requirements.read_text()}"
    environment = cache() / f"peers-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    complete = environment / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install = [environment / "bin/python", "-m", "pip", "install", "--quiet", "-r"]
        subprocess.run([*install, requirements], check=True, capture_output=True, text=True)
        complete.touch()
    return environment


def peers(environment: Path) -> list[Contender]:
    """The tools that do the same, or only find the same calls."""
    python = str(environment / "bin/python")
    rules = (PEERS / "ast_grep.yml").read_text()
    scan = ("scan", "--inline-rules", rules, "--json=stream")
    return [
        Contender("stock Bowler query", (python, str(PEERS / "bowler_query.py"))),
        Contender("LibCST codemod", (python, str(PEERS / "libcst_codemod.py"))),
        Contender("ast-grep scan", (str(environment / "bin/ast-grep"), *scan)),
    ]


def contenders(environment: Path) -> list[Contender]:
    """This tool, on all cores and on one, and its peers, all of them compiled, as an installer does it."""
    compileall.compile_dir(CHECKOUT / "migrate_pallas", quiet=1)
    return [
        Contender("migrate-pallas", MIGRATE_CHECK, is_ours=True),
        Contender("migrate-pallas --jobs=1", (*MIGRATE_CHECK, "--jobs=1"), is_ours=True),
        *peers(environment),
    ]


def calls(output: str, root: Path) -> Counter[tuple[str, str]]:
    """How many calls of which target a peer has found in which file of `root`."""
    matches = [json.loads(line) for line in output.splitlines()]
    return Counter((os.path.relpath(one["file"], root), one["ruleId"]) for one in matches)


def variables(caches: Path) -> dict[str, str]:
    """The environment in which commands run: what they keep between runs, they keep in `caches`."""
    kept = {"XDG_CACHE_HOME": str(caches), "PYTHONPATH": str(CHECKOUT)}
    compiles = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**compiles, **kept}


def unpacked(names: Sequence[str], into: Path) -> Path:
    """The directory `into`, with the packages of those names unpacked in it."""
    for package in PACKAGES:
        if package.name in names:
            with zipfile.ZipFile(wheel(package)) as archive:
                archive.extractall(into / package.name)
    return into


def compare(root: Path, each: Sequence[Contender], rounds: int) -> list[Row]:
    """Run each contender on `root`, cold and again, in `rounds` alternating rounds, then once for its memory."""
    cold: dict[str, list[Timed]] = {one.name: [] for one in each}
    again: dict[str, list[Timed]] = {one.name: [] for one in each}
    for _ in range(rounds):
        for one in each:
            with tempfile.TemporaryDirectory() as caches:
                for runs in (cold, again) if one.is_ours else (cold,):
                    runs[one.name].append(timed([*one.command, str(root)], variables(Path(caches))))
    return [row(one, cold[one.name], again[one.name], memory(one, root), root) for one in each]


def memory(contender: Contender, root: Path) -> Watched:
    """A run of its own for memory, so that looking at it takes nothing from those that are timed."""
    with tempfile.TemporaryDirectory() as caches:
        return watched([*contender.command, str(root)], variables(Path(caches)))


def row(
    contender: Contender, cold: Sequence[Timed], again: Sequence[Timed], peak: Watched, root: Path
) -> Row:
    """What all runs of a contender say."""
    runs = (*cold, *again)
    return Row(
        contender.name,
        tuple(run.seconds for run in cold),
        tuple(run.seconds for run in again),
        tuple(run.processor for run in runs),
        first=peak.first,
        together=peak.together,
        found=None if contender.is_ours else calls(runs[0].output, root).total(),
    )


def comparison_table(rows: Sequence[Row]) -> str:
    """Medians, ratios to the first row, and peaks of memory, as a Markdown table."""
    heads = ["", "cold, s", "again, s", "ratio", "processor, s"]
    heads += ["parent, MB", "all processes, MB", "calls found"]
    cold = median(rows[0].cold)
    lines = [
        [
            one.name,
            spread(one.cold),
            spread(one.again) if one.again else "",
            f"{median(one.cold) / cold:.2f}",
            f"{median(one.processor):.2f}",
            megabytes(one.first),
            megabytes(one.together),
            "" if one.found is None else f"{one.found:,}",
        ]
        for one in rows
    ]
    return markdown(heads, lines)


def spread(seconds: Sequence[float]) -> str:
    """The median, and the least and most in brackets."""
    return f"{median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def megabytes(size: int) -> str:
    """A number of bytes in units of 1,000,000."""
    return f"{size / 1e6:,.1f}"


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *lines))


def grown(sources: Sequence[Path], count: int, into: Path) -> int:
    """Copy `sources` over and over until `into` has `count` files more; their bytes."""
    size = 0
    for number, source in enumerate(islice(cycle(sources), count)):
        target = into / f"{number // 1000:04}" / f"{number:07}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        size += target.stat().st_size
    return size


def growth(packages: Path, files: int, scratch: Path) -> Iterator[tuple[int, int, Watched]]:
    """Files, bytes and what a run took, for an eighth, a quarter, a half and all of `files`."""
    sources = sorted(packages.rglob("*.py"))
    done = size = 0
    for part in (8, 4, 2, 1):
        wanted = files // part
        size += grown(sources, wanted - done, scratch / str(part))
        done = wanted
        with tempfile.TemporaryDirectory() as caches:
            command = [*MIGRATE_CHECK, str(scratch)]
            yield done, size, watched(command, variables(Path(caches)))


def growth_table(measured: Iterator[tuple[int, int, Watched]]) -> str:
    """Time and memory for each size of the tree, as a Markdown table."""
    heads = ["files", "MB", "s", "s for each 100 MB", "parent, MB", "all processes, MB"]
    lines = [
        [
            f"{files:,}",
            megabytes(size),
            f"{run.seconds:.1f}",
            f"{run.seconds / size * 1e8:.2f}",
            megabytes(run.first),
            megabytes(run.together),
        ]
        for files, size, run in measured
    ]
    return markdown(heads, lines)


def start_up(rounds: int) -> str:
    """The time of `--help` beside that of importing click, and of Python alone, as a Markdown table."""
    commands = {
        "migrate-pallas --help": [*MIGRATE, "--help"],
        'python -c "import click"': [sys.executable, "-c", "import click"],
        'python -c ""': [sys.executable, "-c", ""],
    }
    seconds: Mapping[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as caches:
        for name in [name for _ in range(rounds) for name in commands]:
            seconds[name].append(timed(commands[name], variables(Path(caches))).seconds)
    lines = [
        [name, f"{1000 * median(took):.0f}", f"{1000 * min(took):.0f}"]
        for name, took in seconds.items()
    ]
    return markdown(["", "median, ms", "least, ms"], lines)


def heading() -> str:
    """When, with which command, and on what the figures that follow were measured."""
    command = shlex.join(["python", *sys.argv])
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"{day}: `{command}` ({system}, {os.cpu_count()} cores, load average {load})\n"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--growth", nargs="?", type=int, const=50_000, metavar="FILES", help="default: 50000"
    )
    mode.add_argument("--start-up", action="store_true")
    mode.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each command; default: 5")
    parser.add_argument(
        "--package", action="append", choices=NAMES, help="only this one; may be repeated"
    )
    asked = parser.parse_args()
    if asked.rounds < 1 or (asked.growth is not None and asked.growth < 8):
        parser.error("there must be a round at least, and 8 files for --growth")
    return asked


def main() -> None:
    """Do what the arguments ask for."""
    asked = arguments()
    print(heading())
    if asked.start_up:
        print(start_up(asked.rounds))
        return
    with tempfile.TemporaryDirectory() as directory:
        root = unpacked(asked.package or NAMES, Path(directory, "packages"))
        if asked.exhaustive:
            from exhaustive import compare_all, summary

            print(summary(compare_all(root.rglob("*.py")), root))
        elif asked.growth:
            print(growth_table(growth(root, asked.growth, Path(directory, "tree"))))
        else:
            each = contenders(peers_environment())
            print(comparison_table(compare(root, each, asked.rounds)))


if __name__ == "__main__":
    main()
