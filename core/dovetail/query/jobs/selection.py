"""Jobs by number, range or name. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.formats.quantities import read_whole
from dovetail.jobs import display_name as display_names
from dovetail.jobs.display_name import display_name
from dovetail.query.errors import InvalidQueryError

_MOST_IN_RANGE: Final = 100_000
# A number or a range with a slip of the finger, rather than a name.
_NEARLY_NUMBERS: Final = re.compile(r"[\d.-]+")
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One word of a query: numbers from `first` to `last`, or a name."""

    text: str
    first: int = 0
    last: int = 0
    name: str = ""

    def means(self, job: GPUJob) -> bool:
        """Whether the word means this job."""
        if self.name:
            return self.name in {job.metadata.name, display_name(job.metadata)}
        return self.first <= (job.status.number or 0) <= self.last

    @property
    def single(self) -> bool:
        """Whether it names one job, which must then exist."""
        return bool(self.name) or self.first == self.last


def parse_ids(texts: Iterable[str], *, field: str) -> list[Wanted]:
    """The words of texts such as `1`, `1,3`, `1-5` and `train,7`. Raises `InvalidQueryError`."""
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidQueryError(f"{field}: name at least one job, such as 7, 1,3, 1-5 or train-resnet")
    return [_parse(word, field=field) for word in words]


def parse_one(word: str, *, field: str) -> Wanted:
    """The word for one job: a number or a name. Raises `InvalidQueryError`."""
    found = parse_ids([word], field=field)
    if len(found) > 1 or not found[0].single:
        raise InvalidQueryError(f'{field} "{word}": name one job, such as 7 or train-resnet')
    return found[0]


def _parse(word: str, *, field: str) -> Wanted:
    found = _RANGE.fullmatch(word)
    if found:
        first, last = int(found[1]), int(found[2])
        if not 1 <= first <= last or last - first >= _MOST_IN_RANGE:
            raise InvalidQueryError(
                f'{field} "{word}": a range goes from a smaller number, at least 1, to a larger one'
            )
        return Wanted(text=word, first=first, last=last)
    if word.isascii() and word.isdigit():
        number = read_whole(word, otherwise=0)
        if number < 1:
            raise InvalidQueryError(f'{field} "{word}": job numbers begin at 1 and have at most nine digits')
        return Wanted(text=word, first=number, last=number)
    if _NEARLY_NUMBERS.fullmatch(word) or display_names.problem_of(word):
        raise InvalidQueryError(f'{field} "{word}": neither a number, a range such as 1-5, nor the name of a job')
    return Wanted(text=word, name=word)


def select(jobs: Sequence[GPUJob], *, wanted: Iterable[Wanted]) -> tuple[list[GPUJob], list[str]]:
    """The jobs that the words mean, in the order of `jobs`; and the words for one job that does not exist.

    Raises `InvalidQueryError` for a name that several jobs have.
    """
    wanted = list(wanted)
    meant = {id(job) for one in wanted for job in _meant_by(one, jobs=jobs)}
    chosen = [job for job in jobs if id(job) in meant]
    missing = [one.text for one in wanted if one.single and not any(one.means(job) for job in chosen)]
    return chosen, missing


def _meant_by(one: Wanted, *, jobs: Sequence[GPUJob]) -> list[GPUJob]:
    """The jobs of one word. An object's own name comes before what people call another job."""
    found = [job for job in jobs if one.means(job)]
    if not one.name or len(found) < 2:
        return found
    if exact := [job for job in found if job.metadata.name == one.name]:
        return exact
    numbers = ", ".join(str(job.status.number or job.metadata.name) for job in found)
    raise InvalidQueryError(f'"{one.name}" is the name of jobs {numbers}: use a number')


def none_such(missing: Sequence[str]) -> str:
    """The sentence for jobs that do not exist."""
    return f"no job {missing[0]}" if len(missing) == 1 else f"no jobs {', '.join(missing)}"
