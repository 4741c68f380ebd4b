"""Amounts of Slurm's options and values of sweeps, computed a second time in exact fractions."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail_cli.submit import arrays, sbatch
from dovetail_cli.ui.errors import UsageError

MEBIBYTES = {"K": Fraction(1, 1024), "M": Fraction(1), "": Fraction(1), "G": Fraction(1024), "T": Fraction(1024 * 1024)}
few = st.integers(1, 64)


def said(*words: str) -> dict[str, str]:
    """gbatch's options, by name."""
    read = sbatch.read(words).words
    return dict(zip(read[::2], read[1::2], strict=True))


@given(
    nodes=few,
    tasks=few,
    cpus=few,
    per_node=st.booleans(),
    memory=st.integers(1, 100_000),
    unit=st.sampled_from([*MEBIBYTES]),
)
def test_a_node_has_the_cpus_and_memory_of_its_part_of_the_tasks(
    nodes: int, tasks: int, cpus: int, per_node: bool, memory: int, unit: str
) -> None:
    of_tasks = f"--ntasks-per-node={tasks}" if per_node else f"--ntasks={tasks}"
    found = said(f"--nodes={nodes}", of_tasks, f"--cpus-per-task={cpus}", f"--mem-per-cpu={memory}{unit}")
    each = cpus * (tasks if per_node else math.ceil(Fraction(tasks, nodes)))
    assert found == {
        "--nodes": str(nodes), "--cpus": str(each),
        "--memory": f"{math.ceil(memory * MEBIBYTES[unit]) * each}M",
    }  # fmt: skip
    # Memory of a node is of all its CPUs together.
    assert said(f"--mem={memory}{unit}", f"-c{cpus}")["--memory"] == f"{math.ceil(memory * MEBIBYTES[unit])}M"


@given(nodes=few, gpus=few)
def test_gpus_of_all_nodes_are_divided_and_gpus_of_each_are_not(nodes: int, gpus: int) -> None:
    assert said(f"-N{nodes}", f"--gpus=a100:{gpus * nodes}")["--gpus"] == f"{gpus}(A100)"
    assert said(f"-N{nodes}", f"--gres=gpu:{gpus}")["--gpus"] == str(gpus)
    assert said(f"-N{nodes}-99", f"--gpus-per-node={gpus}")["--gpus"] == str(gpus)
    assume(nodes > 1)
    with pytest.raises(UsageError, match="cannot have equally many"):
        said(f"-N{nodes}", f"--gpus={gpus * nodes + 1}")


@given(
    start=st.integers(-1000, 1000), steps=st.integers(0, 200), step=st.integers(-50, 50), rest=st.integers(0, 49),
    places=st.integers(0, 4),
)  # fmt: skip
def test_the_values_of_a_range_go_by_steps_as_far_as_its_end(
    start: int, steps: int, step: int, rest: int, places: int
) -> None:
    assume(step)
    unit = Decimal(10) ** -places
    beyond = min(rest, abs(step) - 1) * (1 if step > 0 else -1)
    stop = start + steps * step + beyond
    text = f"x={start * unit:f}:{stop * unit:f}:{step * unit:f}"
    read = arrays.read(array=None, params=[text], param_file=None, name_template=None, max_concurrent=None)
    assert read.sweep is not None
    (parameter,) = read.sweep.parameters
    expected = [(start + at * step) * Fraction(1, 10**places) for at in range(steps + 1)]
    assert [Fraction(value) for value in parameter.values] == expected
    assert not any("e" in value.lower() for value in parameter.values)
