"""The record of a soak as text and as a plot."""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from tools.soak.record import Record
from tools.soak.verdicts import QUARTERS, delays, percentile, verdicts

# Parts of the run in which memory is shown: those after the first quarter, whose first and last are compared.
_PARTS: Final = ((0.25, 0.4), (0.4, 0.55), (0.55, 0.7), (0.7, 0.85), (0.85, 1.0))


def text(record: Record) -> str:
    """The record as Markdown: what was done, the requirements, and the delays of reasons."""
    done = Counter(each.kind for each in record.disturbances)
    return "\n".join(
        [
            _summary(record),
            "",
            *_table(("requirement", "holds", "seen"), rows=[
                (each.requirement, "yes" if each.holds else "**no**", each.figure) for each in verdicts(record)
            ]),
            "",
            *_table(("disturbance", "times"), rows=[(kind, str(times)) for kind, times in sorted(done.items())]),
            *(f"\nLeft out: {each}." for each in record.left_out),
            "",
            *_table(("part of the run", "jobs", "seconds until the first status: p50", "p99", "most"), rows=[
                _delay_row(record, begin=begin, end=end) for begin, end in QUARTERS
            ]),
            "",
            *_table(("MiB, median", *(_part(begin, end=end) for begin, end in _PARTS)), rows=_memory_rows(record)),
            "",
        ]
    )  # fmt: skip


def _summary(record: Record) -> str:
    kinds = len({job.kind for job in record.jobs})
    preempted = sum(job.preempted for job in record.jobs)
    return (
        f"{record.date}, {record.seconds / 60:.0f} minutes, {record.nodes} simulated nodes, seed {record.seed}: "
        f"{len(record.jobs)} jobs of {kinds} kinds, {preempted} preemptions, {len(record.disturbances)} disturbances."
    )


def plot(record: Record, *, path: Path) -> None:
    """Draw memory and delays over time, with the disturbances, into a file. Raises `OSError`."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    memory, delay = figure.subplots(2, 1, sharex=True)
    for program in sorted({sample.program for sample in record.samples}):
        own = [sample for sample in record.samples if sample.program == program]
        memory.plot([each.at / 60 for each in own], [each.mib for each in own], label=program, linewidth=1)
    memory.set_ylabel("resident memory, MiB")
    memory.set_ylim(bottom=0)
    memory.legend(loc="upper left", ncols=3, fontsize="small")
    known = [(job.submitted / 60, job.answered - job.submitted) for job in record.jobs if job.answered is not None]
    delay.plot([at for at, _ in known], [max(took, 0.001) for _, took in known], ".", markersize=2)
    delay.set_yscale("log")
    delay.set_ylabel("seconds until a job's first status")
    delay.set_xlabel("minutes")
    for each in record.disturbances:
        for axes in (memory, delay):
            colour = "tab:red" if each.kind in {"kill", "api-server"} else "tab:grey"
            axes.axvspan(each.at / 60, (each.at + max(each.seconds, 1)) / 60, color=colour, alpha=0.25, linewidth=0)
    figure.savefig(path, dpi=90)


def _delay_row(record: Record, *, begin: float, end: float) -> tuple[str, ...]:
    values = delays(record, begin=begin, end=end)
    shown = [f"{percentile(values, percent=percent):.2f}" for percent in (50, 99, 100)]
    return (_part(begin, end=end), str(len(values)), *shown)


def _memory_rows(record: Record) -> list[tuple[str, ...]]:
    """The median memory of each program in each part of the run."""
    found: dict[str, list[str]] = {program: [] for program in sorted({sample.program for sample in record.samples})}
    for program, row in found.items():
        for begin, end in _PARTS:
            span = begin * record.seconds, end * record.seconds
            values = [each.mib for each in record.samples if each.program == program and span[0] <= each.at <= span[1]]
            row.append(f"{statistics.median(values):.1f}" if values else "")
    return [(program, *row) for program, row in found.items()]


def _part(begin: float, *, end: float) -> str:
    return f"{begin:.0%} to {end:.0%}"


def _table(header: Sequence[str], *, rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
