"""`python -m tools.soak`: see `--help`. Exit code 1 if a requirement does not hold."""

import argparse
import sys
from pathlib import Path

import msgspec

from tools.soak import report
from tools.soak.record import Record, RecordError, read
from tools.soak.run import Options, soak
from tools.soak.verdicts import passed


def main(arguments: list[str]) -> int:
    """Run a soak, print its report, and write record and plot; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description="Run jobs of every kind on a sandbox of its own while its programs are killed, paused, cut off "
        "from the API server and moved in time, and check that nothing is lost.",
    )
    parser.add_argument("--minutes", type=float, default=120, help="how long jobs come (default: 120)")
    parser.add_argument("--every", type=float, default=40, help="mean seconds between disturbances (default: 40)")
    parser.add_argument("--end", type=float, default=600, help="seconds in which what waits may end (default: 600)")
    parser.add_argument("--rate", type=float, default=1.0, help="mean number of jobs per second (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="of jobs and disturbances (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of soak.json and soak.png (default: out)")
    parser.add_argument(
        "--of", type=Path, metavar="FILE", help="judge this soak.json of an earlier run, and run nothing"
    )
    chosen = parser.parse_args(arguments)
    for name in ("minutes", "every", "end", "rate"):
        if getattr(chosen, name) <= 0:
            parser.error(f"--{name} {getattr(chosen, name):g} is not allowed; use a number above 0")
    try:
        record = _run(chosen) if chosen.of is None else read(chosen.of)
    except RecordError as error:
        parser.error(str(error))
    chosen.out.mkdir(parents=True, exist_ok=True)
    report.plot(record, path=chosen.out / "soak.png")
    print(report.text(record))
    return 0 if passed(record) else 1


def _run(chosen: argparse.Namespace) -> Record:
    options = Options(
        seconds=60 * chosen.minutes,
        every_seconds=chosen.every,
        end_seconds=chosen.end,
        seed=chosen.seed,
        per_second=chosen.rate,
    )
    record = soak(options, say=lambda line: print(line, file=sys.stderr, flush=True))
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    return record


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
