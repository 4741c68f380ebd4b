"""Jobs by number, range or name, and by how long ago a user submitted them. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail import names
from dovetail.answers.owners import user_of
from dovetail.api.gpujob import GPUJob
from dovetail.formats.quantities import read_whole
from dovetail.jobs import display_name as display_names
from dovetail.jobs.display_name import display_name
from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs.groups import in_order

_MOST_IN_RANGE: Final = 100_000
# A number or a range with a slip of the finger, rather than a name.
_NEARLY_NUMBERS: Final = re.compile(r"[\d.-]+")
_LAST: Final = re.compile(r"@(?:~(\d{1,4}))?")
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One word of a query.

    text     the word
    first    the first number of a range
    last     its last number
    name     a job's name
    back     how many jobs `user` submitted after it; None where the word says it otherwise
    user     whose jobs `@` and `@~1` count; empty until it is known
    """

    text: str
    first: int = 0
    last: int = 0
    name: str = ""
    back: int | None = None
    user: str = ""

    def means(self, job: GPUJob) -> bool:
        """Whether the word's name or range means this job."""
        if self.name:
            return self.name in {job.metadata.name, display_name(job.metadata)}
        return self.first <= (job.status.number or 0) <= self.last

    @property
    def single(self) -> bool:
        """Whether it names one job, which must then exist."""
        return bool(self.name) or self.back is not None or self.first == self.last


def parse_ids(texts: Iterable[str], *, field: str) -> list[Wanted]:
    """The words of texts such as `1`, `1,3`, `1-5`, `train,7` and `@`. Raises `InvalidQueryError`."""
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidQueryError(
            f"{field}: name at least one job, such as 7, 1,3, 1-5, train-resnet, or @ for your last one"
        )
    return [_parse(word, field=field) for word in words]


def parse_one(word: str, *, field: str) -> Wanted:
    """The word for one job: a number, a name or `@`. Raises `InvalidQueryError`."""
    found = parse_ids([word], field=field)
    if len(found) > 1 or not found[0].single:
        raise InvalidQueryError(f'{field} "{word}": name one job, such as 7, train-resnet, or @ for your last one')
    return found[0]


def _parse(word: str, *, field: str) -> Wanted:
    if counted := _LAST.fullmatch(word):
        return Wanted(text=word, back=int(counted[1] or 0))
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
        raise InvalidQueryError(
            f'{field} "{word}": neither a number, a range such as 1-5, the name of a job, nor @ for your last one'
        )
    return Wanted(text=word, name=word)


def select(jobs: Sequence[GPUJob], *, wanted: Iterable[Wanted]) -> tuple[list[GPUJob], list[str]]:
    """The jobs that the words mean, in the order of `jobs`; and the words for one job that does not exist.

    Raises `InvalidQueryError` for a name that several jobs have.
    """
    meant = [(one, _meant_by(one, jobs=jobs)) for one in wanted]
    ids = {id(job) for _, found in meant for job in found}
    missing = [_called(one) for one, found in meant if one.single and not found]
    return [job for job in jobs if id(job) in ids], missing


def _meant_by(one: Wanted, *, jobs: Sequence[GPUJob]) -> list[GPUJob]:
    """The jobs of one word. An object's own name comes before what people call another job."""
    if one.back is not None:
        # The tasks of an array come with it.
        of_user = [job for job in jobs if user_of(job) == one.user and names.LABEL_ARRAY not in job.metadata.labels]
        return in_order(of_user)[::-1][one.back : one.back + 1]
    found = [job for job in jobs if one.means(job)]
    if not one.name or len(found) < 2:
        return found
    if exact := [job for job in found if job.metadata.name == one.name]:
        return exact
    numbers = ", ".join(str(job.status.number or job.metadata.name) for job in found)
    raise InvalidQueryError(f'"{one.name}" is the name of jobs {numbers}: use a number')


def _called(one: Wanted) -> str:
    return one.text if one.back is None else f"{one.text} of {one.user}"


def none_such(missing: Sequence[str]) -> str:
    """The sentence for jobs that do not exist."""
    return f"no job {missing[0]}" if len(missing) == 1 else f"no jobs {', '.join(missing)}"
