"""The command judges a record of an earlier run."""

from pathlib import Path

import msgspec
import pytest

from tests.tools.soak.test_verdicts import come, record
from tools.soak.__main__ import main


def written(folder: Path, **changes: object) -> Path:
    path = folder / "soak.json"
    path.write_bytes(msgspec.json.encode(record(**changes)))
    return path


def test_an_earlier_run_is_judged_and_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert main(["--of", str(path), "--out", str(tmp_path / "again")]) == 0
    assert "| No job is lost | yes | 100 of 100 ended |" in capsys.readouterr().out
    assert (tmp_path / "again" / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_an_earlier_run_that_failed_fails_again(tmp_path: Path) -> None:
    path = written(tmp_path, jobs=come(late_seconds=1.1))
    assert main(["--of", str(path), "--out", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "No such file or directory"), ('{"seconds": "long"}', "no record of a soak, use its soak.json")],
)
def test_a_file_that_is_no_record_is_named(
    text: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "soak.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["--of", str(path), "--out", str(tmp_path)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"--of {path}: " in said
    assert says in said
