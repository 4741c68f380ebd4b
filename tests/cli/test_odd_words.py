"""Words that people and programs type into options: each is read, or refused in a sentence.

Nothing else leaves a reader. A new reader of words is an entry of `READERS`, with words that it takes; hypothesis puts
something odd into one of them.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.query.errors import InvalidQueryError, NotFoundError
from dovetail.query.jobs import selection
from dovetail_cli.jobs import attach, listing, renew_lease
from dovetail_cli.nodes import limits, quota_changes
from dovetail_cli.slurm import translation
from dovetail_cli.submit import arrays, dependencies, local, manifest, notify, pod_options, sbatch
from dovetail_cli.submit.profiles import edit
from dovetail_cli.submit.profiles.profile import KEYS, Profile
from dovetail_cli.ui import times
from dovetail_cli.ui.errors import CommandError

REFUSALS = (CommandError, InvalidQueryError, NotFoundError)
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
# What a number may be besides a number, what a text may have besides letters, and what is larger than any type.
ODD = (
    "", " ", "-", "--", "=", ":", "::", ",", ",,", "%", "@", "@~", ".", "..", "/", "(", ")", "'", '"', "\\", "\n",
    "\0", "\u00b2", "\u0663", "\u202e", "\U0001f4a3", "nan", "NaN", "inf", "-inf", "Infinity", "1e999", "1e99999999",
    "1e-99999999", "-0", "0x10", "1_000", "9" * 9, "9" * 19, "9" * 400, "9" * 5000, "0." + "0" * 400 + "1", "null",
    "~", "{}", "[]", "&a", "*a", "!!python/object:x", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
    "2026-02-30", "24:00", "w", "d", "now+", "Ei", "%s", "{index}", "${HOME}", "x" * 300,
)  # fmt: skip


def a_lone(read: Callable[[str], Any]) -> Callable[[Sequence[str]], Any]:
    """A reader of one word."""
    return lambda words: read(words[0])


def tasks(**option: str) -> Callable[[Sequence[str]], Any]:
    known = {"array": None, "params": (), "param_file": None, "name_template": None, "max_concurrent": None}
    return lambda words: arrays.read(**(known | {name: kind(words) for name, kind in KINDS[option["of"]].items()}))


KINDS: dict[str, dict[str, Callable[[Sequence[str]], Any]]] = {
    "array": {"array": lambda words: words[0]},
    "params": {"params": list},
    "template": {"params": lambda _: ["lr=1,2"], "name_template": lambda words: words[0]},
}


def quota(option: str) -> Callable[[Sequence[str]], Any]:
    return a_lone(lambda word: quota_changes.read(lists={}, amounts={option: word}, per=None, preemption_policy=None))


def profile(key: str) -> Callable[[Sequence[str]], Any]:
    return lambda words: edit.with_value(Profile(), key=key, values=words)


READERS: dict[str, tuple[Callable[[Sequence[str]], Any], list[list[str]]]] = {
    "a time limit": (a_lone(times.limit_seconds), [["1-02:03:04"], ["90:00"], ["10"]]),
    "a span": (a_lone(lambda word: times.span_seconds(word, option="--for")), [["1.5h"], ["500ms"], ["20"]]),
    "a lease": (a_lone(renew_lease.whole_seconds), [["1h"], ["20"]]),
    "a time in the past": (
        a_lone(lambda word: times.since_time(word, now=NOW, option="--since")),
        [["1d"], ["2026-01-31"], ["09:30"], ["2026-01-31T18:00:00+01:00"]],
    ),
    "a time to begin": (
        a_lone(lambda word: times.begin_time(word, now=NOW)),
        [["now+10m"], ["now+5weeks"], ["18:00"], ["2026-12-01T18:00:00Z"]],
    ),
    "an array": (tasks(of="array"), [["0-15:2,20%4"], ["1,3"]]),
    "parameters": (tasks(of="params"), [["lr=0.1:0.3:0.1", "n=10:1:-4"], ["image=repo:tag"], ["a=b,c"]]),
    "a template of names": (tasks(of="template"), [["lr{lr}-{index}"]]),
    "GPUs": (
        a_lone(lambda word: manifest.request_of(word, gpu_memory=None)),
        [["2x8G,0.5(nvidia,V100)"], ["3g.40gb(H100)"], ["1@a/cuda:0"], ["50%,0.25"]],
    ),
    "memory of GPUs": (a_lone(lambda word: manifest.request_of("0.5", gpu_memory=word)), [["8G"], ["512MiB"]]),
    "host memory": (a_lone(lambda word: manifest.host_resources(cpus=None, memory=word)), [["1.5G"], ["512M"]]),
    "host CPUs": (a_lone(lambda word: manifest.host_resources(cpus=word, memory=None)), [["500m"], ["4"]]),
    "a memory strategy": (a_lone(manifest.parse_memory_strategy), [["Aggressive"], ["0.75"]]),
    "a fallback": (a_lone(lambda word: manifest.fallback_of(None, after=word)), [["30m"]]),
    "variables": (pod_options.variables, [["LR=0.1", "B=c=d"]]),
    "volumes": (pod_options.volumes, [["data:/data:ro", "more:/more"]]),
    "labels of nodes": (pod_options.node_labels, [["disk=nvme,zone=a"], ["example.org/x=y"]]),
    "a topology": (
        a_lone(lambda word: pod_options.topology(word, workers=8)),
        [["required=rack,group=4:nvlink"], ["preferred=zone"]],
    ),
    "jobs": (lambda words: selection.parse_ids(words, field="JOB"), [["1-5", "train,7"]]),
    "one job": (a_lone(lambda word: selection.parse_one(word, field="JOB")), [["7"], ["train-resnet"]]),
    "dependencies": (a_lone(lambda word: dependencies.read(None, all_of=word, any_of=None)), [["7,@~2,train"]]),
    "addresses": (lambda words: notify.read(words, events=["All"]), [["ada@example.org", "b@c.de,d@e.fr"]]),
    "events": (lambda words: notify.read(["ada@example.org"], events=words), [["Started,Finished"]]),
    "a number of rows": (a_lone(listing.parse_limit), [["-10"], ["+5"]]),
    "ports": (a_lone(attach._ports), [["9999:8888"], ["8888"]]),
    "limits": (limits.parse, [["training_per_device=2", "policy=PACK"]]),
    "exported variables": (a_lone(lambda word: local.exported(word, environ={"PATH": "/bin"})), [["ALL,LR=0.1,PATH"]]),
    "#SBATCH": (
        sbatch.read,
        [
            ["--time=1-02:03", "-N", "2-4", "--gpus=a100:4", "--mem-per-cpu=2G", "-c", "4", "--ntasks=9"],
            ["--gres=gpu:a100:2", "-d", "afterok:7:8?afterok:9", "--mail-type=END,FAIL", "--mail-user=a@b.de"],
        ],
    ),
    "sbatch": (translation.sbatch, [["--parsable", "-J", "x", "--wrap", "true"], ["-t", "5", "job.sh", "a"]]),
    "squeue": (translation.squeue, [["-t", "all", "-o", "%.18i %j"], ["-O", "jobid:9,name", "--me"]]),
    "scancel": (translation.scancel, [["-n", "train", "7"]]),
    "sinfo": (translation.sinfo, [["-N", "-o", "%N", "--json"]]),
    **{f"a quota's {option}": (quota(option), [["8"], ["none"]]) for option in quota_changes._AMOUNTS},
    **{
        f"a profile's {key}": (profile(key if not KEYS[key].has_names else f"{key}.LR"), [words])
        for key, words in {
            "image": ["busybox:1.37"], "env": ["0.1"], "volumes": ["data:/data", "x:/y:ro"], "workdir": ["/data"],
            "node-selector": ["nvme"], "gateway": ["https://gpu.example.org:8443/x"], "upload": ["true"],
            "cpu-fallback": ["30m"],
        }.items()
    },
}  # fmt: skip


@st.composite
def nearly(draw: st.DrawFn, examples: list[list[str]]) -> list[str]:
    """Words that are taken, with something odd in the place of a part of one of them."""
    words = list(draw(st.sampled_from(examples)))
    at = draw(st.integers(0, len(words) - 1))
    begin = draw(st.integers(0, len(words[at])))
    end = draw(st.integers(begin, len(words[at])))
    odd = draw(st.sampled_from(ODD) | st.text(max_size=6))
    words[at] = words[at][:begin] + odd + words[at][end:]
    return words


def refusal_of(read: Callable[[Sequence[str]], Any], *, words: Sequence[str]) -> str | None:
    """The sentence that refuses the words; None if they are taken."""
    try:
        read(words)
    except REFUSALS as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", READERS)
def test_the_words_of_the_table_are_taken(name: str) -> None:
    read, examples = READERS[name]
    for words in examples:
        if "--me" not in words:
            read(words)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_odd_words_are_read_or_refused_in_a_sentence(name: str, data: st.DataObject) -> None:
    read, examples = READERS[name]
    said = refusal_of(read, words=data.draw(nearly(examples)))
    assert said is None or said.strip()


@pytest.mark.parametrize("name", READERS)
def test_each_part_of_a_word_may_be_anything(name: str) -> None:
    """The same without drawing: every odd piece behind each word, before it, and in its stead."""
    read, examples = READERS[name]
    for words in examples:
        for at, word in enumerate(words):
            for odd in ODD:
                for changed in (odd, odd + word, word + odd, word[: len(word) // 2] + odd + word[len(word) // 2 :]):
                    said = refusal_of(read, words=[*words[:at], changed, *words[at + 1 :]])
                    assert said is None or said.strip()
