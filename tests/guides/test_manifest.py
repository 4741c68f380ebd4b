"""The manifest is about the guides as they are, and each block that is not compared has its reason in migration.md."""

import re

from tests.guides.blocks import sample, shape
from tests.guides.manifest import MOST_EXCEPTIONS, ROOT, guides, manifest, text_of


def test_every_block_of_the_guides_is_in_the_manifest_as_it_is() -> None:
    found = {f"{guide}.{at:02}": block.digest for guide, blocks in guides().items() for at, block in enumerate(blocks)}
    assert {each.name: each.digest for each in manifest()} == found


def test_the_fields_of_a_sample_are_those_of_the_guide() -> None:
    samples = [each for each in manifest() if each.run == "sample" and each.fields]
    for each in samples:
        assert dict(each.fields) == shape(sample(text_of(each))), each.name
    assert len(samples) == 5


def test_every_block_that_is_not_an_exception_says_what_it_compares() -> None:
    own = {"guide", "at", "digest", "run", "on", "given", "busy", "holds", "tasks", "sample_guide"}
    names = [name for name in manifest()[0].__dataclass_fields__ if name not in own]
    for each in manifest():
        compares = any(getattr(each, name) for name in names) or each.run == "refusal"
        assert compares != (each.run == "exception"), each.name


def test_each_exception_has_its_reason_on_the_page() -> None:
    page = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    reasons = dict(re.findall(r"^\| ([0-9]{3}\.[0-9]{2}) \| (.+) \|$", page, re.MULTILINE))
    exceptions = [each.name for each in manifest() if each.run == "exception"]
    assert list(reasons) == exceptions
    assert len(exceptions) <= MOST_EXCEPTIONS
