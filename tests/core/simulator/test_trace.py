"""Traces: what is read, and the one sentence about each line that cannot be."""

import pytest

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.trace import (
    Pod,
    TraceError,
    columns_of,
    parse_arrivals,
    parse_nodes,
    parse_order,
    parse_pods,
    parse_timed_pods,
)
from tests.core.simulator.builders import NODES, PODS

NODE_HEADER, POD_HEADER = NODES.splitlines()[0], PODS.splitlines()[0]


def test_nodes_become_columns_in_their_order():
    columns = columns_of(parse_nodes(NODES, source="nodes.csv"))
    assert columns.gpus.tolist() == [8, 8, 4, 4, 2, 8]
    assert columns.model_names == ("A10", "T4", "V100")
    assert columns.capacity_milli == 34_000


def test_pods_become_shapes():
    pods = parse_pods(PODS, source="pods.csv")
    assert pods["pair"] == Shape(cpu_milli=8000, memory_mib=16384, gpus=2, share_milli=1000, models=("A10", "V100"))
    assert pods["host"] == Shape(cpu_milli=8000, memory_mib=16384)


def test_columns_may_come_in_any_order_with_others_between():
    text = "gpu_spec,qos,name,memory_mib,cpu_milli,gpu_milli,num_gpu\n,LS,p,1,2,500,1\n"
    assert parse_pods(text, source="p")["p"] == Shape(cpu_milli=2, memory_mib=1, gpus=1, share_milli=500)


def test_pods_of_a_list_without_models_take_any():
    without = "\n".join(line.rpartition(",")[0] for line in PODS.splitlines())
    pods = parse_pods(without, source="pods.csv")
    assert pods["pair"] == Shape(cpu_milli=8000, memory_mib=16384, gpus=2, share_milli=1000)
    with pytest.raises(TraceError, match="the line ends before it, expected 6 values"):
        parse_pods(f"{PODS}short,1,1,1,500\n", source="pods.csv")


def test_a_name_that_comes_again_is_one_more_pod():
    pods = parse_pods(PODS, source="pods.csv")
    assert parse_arrivals("one\nhost\none\n", source="a", pods=pods) == [pods["one"], pods["host"], pods["one"]]


def test_an_order_puts_the_nodes_in_place():
    nodes = parse_nodes(NODES, source="nodes.csv")
    assert [node.name for node in parse_order("f\ne\nd\nc\nb\na\n", source="o", nodes=nodes)] == list("fedcba")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("g,x,1,1,T4", 'n.csv, line 2, column "cpu_milli": "x": expected a whole number, 0 or more'),
        ("g,1,-5,1,T4", 'n.csv, line 2, column "memory_mib": "-5": expected a whole number, 0 or more'),
        ("g,1,1,65,T4", 'n.csv, line 2, column "gpu": "65": expected a whole number, 0 to 64'),
        (",1,1,1,T4", 'n.csv, line 2, column "sn": "": expected a name that no other line has'),
        ("g,1,1", 'n.csv, line 2, column "gpu": "": the line ends before it, expected 5 values'),
        ("g,1,1,99999999999999999,T4", 'column "gpu": "99999999999999999": expected a whole number, 0 to 64'),
        ("g,1,1,٣,T4", 'column "gpu": "٣": expected a whole number'),
        ("", 'n.csv, line 2: "": expected at least one node'),
    ],
)
def test_a_node_that_cannot_be_is_told_in_one_sentence(line: str, sentence: str):
    with pytest.raises(TraceError) as told:
        parse_nodes(f"{NODE_HEADER}\n{line}\n", source="n.csv")
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("p,1,1,1,1001,", 'column "gpu_milli": "1001": expected a whole number, 1 to 1000'),
        ("p,1,1,1,0,", 'column "gpu_milli": "0": expected a whole number, 1 to 1000'),
        ("p,1,1,2,500,", 'column "gpu_milli": "500": expected 1000'),
        ("p,1.5,1,2,1000,", 'column "cpu_milli": "1.5": expected a whole number'),
        ("", 'p.csv, line 2: "": expected at least one pod'),
    ],
)
def test_a_pod_that_cannot_be_is_told_in_one_sentence(line: str, sentence: str):
    with pytest.raises(TraceError) as told:
        parse_pods(f"{POD_HEADER}\n{line}\n", source="p.csv")
    assert sentence in str(told.value)


def test_a_table_without_a_column_is_told_by_its_name():
    with pytest.raises(TraceError, match=r'n.csv, line 1: "sn,cpu_milli": the column memory_mib is missing, expected'):
        parse_nodes("sn,cpu_milli\n", source="n.csv")


TIMES = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time"


def timed(*rows: str) -> list[Pod]:
    return parse_timed_pods("\r\n".join([TIMES, *rows, ""]), source="p.csv")


def test_pods_with_times_come_in_the_order_of_their_arrival():
    pods = timed("b,1,1,0,0,,30,40,31", "a,6000,12288,1,460,V100M16|V100M32,10,110,20")
    assert [(pod.name, pod.created_at, pod.ran_seconds) for pod in pods] == [("a", 10, 90), ("b", 30, 9)]
    assert pods[0].shape.models == ("V100M16", "V100M32")


@pytest.mark.parametrize(("times", "ran"), [("100,160,", 60), ("100,,120", 0), (",,", 0), ("5,3,4", 0)])
def test_a_pod_that_was_never_scheduled_ran_from_its_creation_and_one_that_never_left_not_at_all(times, ran):
    assert timed(f"a,1,1,0,0,,{times}")[0].ran_seconds == ran


def test_times_that_are_none_are_told_and_those_that_nobody_asks_for_are_not_read():
    with pytest.raises(TraceError, match=r'p\.csv, line 2, column "creation_time": "soon": expected seconds'):
        timed("a,1,1,0,0,,soon,1,0")
    assert "a" in parse_pods(f"{TIMES}\na,1,1,0,0,,soon,1,0", source="p")


def test_empty_lines_of_arrivals_are_none():
    pods = parse_pods(PODS, source="p")
    assert len(parse_arrivals("one\r\n\r\none\r\n\r\n", source="a", pods=pods)) == 2


def test_a_line_that_is_no_csv_is_told_with_its_number():
    with pytest.raises(TraceError, match=r"p, line 2: .*field larger than"):
        parse_pods(f"{POD_HEADER}\n{'x' * 200_000},1,1,0,0,\n", source="p")


def test_an_empty_table_is_told_with_what_is_expected():
    with pytest.raises(TraceError, match=r'p, line 1: "": expected name, cpu_milli'):
        parse_pods("", source="p")


def test_a_name_that_comes_twice_in_a_table_is_refused():
    with pytest.raises(TraceError, match='line 3, column "name": "p"'):
        parse_pods(f"{POD_HEADER}\np,1,1,0,0,\np,1,1,0,0,\n", source="p")


def test_an_unknown_arrival_is_told_with_its_line():
    pods = parse_pods(PODS, source="p")
    with pytest.raises(TraceError, match=r'a\.txt, line 2: "two": expected a pod of the pod table'):
        parse_arrivals("one\ntwo\n", source="a.txt", pods=pods)


def test_arrivals_that_ask_for_no_device_are_refused():
    with pytest.raises(TraceError, match="expected a pod that asks for a GPU"):
        parse_arrivals("host\n", source="a", pods=parse_pods(PODS, source="p"))


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ("a\nb\na\n", 'line 3: "a": expected each node once'),
        ("a\nb\n", 'line 3: "": expected the node c, too'),
        ("z\n", 'line 1: "z": expected a node of the node table'),
    ],
)
def test_an_order_is_of_all_nodes_once(order: str, sentence: str):
    with pytest.raises(TraceError, match=sentence):
        parse_order(order, source="o", nodes=parse_nodes(NODES, source="n"))
