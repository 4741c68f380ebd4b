"""The command line: `python -m tools.release`."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tools.release import sums, versions
from tools.release.build import PARTS, build, prepared
from tools.release.errors import ReleaseError

ROOT: Final = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Run one of the three commands; the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        match chosen.command:
            case "check":
                versions.check(chosen.tag, root=ROOT)
            case "notes":
                print(versions.notes(chosen.tag, root=ROOT))
            case _:
                release = prepared(ROOT, out=chosen.out, tag=chosen.tag, registry=chosen.registry)
                build(release, parts=(chosen.only,) if chosen.only else PARTS)
                print(sums.table(chosen.out))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="What a release is made of.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("check", "that every file states the tag's version"), ("notes", "the changelog's section")):
        commands.add_parser(name, help=what).add_argument("tag", help="such as v0.2.0")
    building = commands.add_parser("build", help="all that is published")
    building.add_argument("--tag", default="", help="such as v0.2.0; without it the version that the files state")
    building.add_argument("--registry", default="", help="of the images, such as registry.example/dovetail")
    building.add_argument("--only", choices=PARTS, help="one part alone")
    building.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="dist/ by default")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
