"""The jobs that a new job waits for, from numbers, names and @ in gbatch's options."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.api.gpujob import Dependency, GPUJob
from dovetail.jobs.display_name import object_name
from dovetail.query.jobs import selection
from dovetail_cli.cluster import identity
from dovetail_cli.cluster.connection import Cluster, list_jobs
from dovetail_cli.ui.errors import MissingError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The dependencies in gbatch's options: words for jobs, and whether one of them suffices."""

    words: tuple[str, ...]
    any_one: bool = False


def read(one: Sequence[str] | None, *, all_of: str | None, any_of: str | None) -> Wanted | None:
    """The jobs that -d, --depends-on-all or --depends-on-any names; None without them.

    Raises `UsageError`.
    """
    if one and len(one) > 1:
        raise UsageError(f"-d {one[0]} -d {one[1]}: -d names one job; use --depends-on-all {','.join(one)}")
    said = [("-d", one[0] if one else None), ("--depends-on-all", all_of), ("--depends-on-any", any_of)]
    given = [(option, text) for option, text in said if text is not None]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(f"{given[0][0]} and {given[1][0]} go not together: use --depends-on-all for several jobs")
    option, text = given[0]
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words or (option == "-d" and len(words) > 1):
        raise UsageError(f'{option} "{text}": name a job by number or name, such as 7, or @ for your last one')
    for found in selection.parse_ids(words, field=option):
        if not found.single:
            raise UsageError(f'{option} "{found.text}": name each job by itself, such as 1,2,3')
    return Wanted(words=words, any_one=option == "--depends-on-any")


async def resolve(wanted: Wanted, *, cluster: Cluster) -> list[Dependency]:
    """The dependencies by the names of jobs.

    Raises `MissingError` for a number, or an @, that means no job.
    """
    jobs = await list_jobs(cluster)
    words = await identity.of_caller(selection.parse_ids(wanted.words, field="-d"), cluster=cluster)
    found = [_name_of(word, jobs=jobs) for word in words]
    return [Dependency(name=name) for name in dict.fromkeys(found)]


def _name_of(word: selection.Wanted, *, jobs: Sequence[GPUJob]) -> str:
    chosen, missing = selection.select(jobs, wanted=[word])
    if chosen:
        return chosen[0].metadata.name
    if word.name:
        print(f"dovetail: there is no job {word.text} yet: the new one waits until it is there", file=sys.stderr)
        return object_name(word.name)
    raise MissingError(selection.none_such(missing))
