"""Programs that share a process. Each test has a process of its own, because `install` lasts as long as one."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

PRELUDE = """
import asyncio, logging, os, queue, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from dovetail.process import serving, shared_process
from dovetail.process.shared_process import Program

shared_process.install()
codes = queue.Queue()

def program(name, main, *words, **environ):
    made = Program(name, words=words, environ=environ, log=Path(f"{name}.log"))
    made.start(main, ended=lambda code: codes.put((name, code)))
    return made

def ended(count):
    return dict(codes.get(timeout=60) for _ in range(count))
"""


def printed(script: str, *, folder: Path) -> str:
    text = PRELUDE + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_each_program_and_each_of_its_threads_has_its_environment_and_its_log(tmp_path: Path) -> None:
    script = """
    both = threading.Barrier(2)

    async def aside():
        await asyncio.to_thread(print, "asyncio", os.environ["NAME"])

    def main(words):
        both.wait(60)
        print("main", *words, os.environ["NAME"], os.getenv("PATH"))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: print("pool", os.environ["NAME"])).result()
            pool.submit(lambda: threading.Thread(target=print, args=("thread",)).start()).result()
        asyncio.run(aside())
        both.wait(60)

    one = program("one", main, "--a", NAME="first")
    two = program("two", main, "--b", NAME="second")
    print(sorted(ended(2).items()), "NAME" in os.environ, "PATH" in os.environ)
    """
    assert printed(script, folder=tmp_path) == "[('one', 0), ('two', 0)] False True\n"
    for name, word, value in (("one", "--a", "first"), ("two", "--b", "second")):
        lines = (tmp_path / f"{name}.log").read_text().splitlines()
        assert lines == [f"main {word} {value} None", f"pool {value}", "thread", f"asyncio {value}"]


def test_a_program_changes_its_own_environment_alone(tmp_path: Path) -> None:
    script = """
    def main(words):
        os.environ["MORE"] = "x"
        del os.environ["NAME"]
        print(sorted(os.environ), dict(os.environ) == os.environ.copy(), len(os.environ))

    one = program("one", main, NAME="first", OTHER="o")
    two = ended(1) and program("two", main, NAME="second")
    print(ended(1), "MORE" in os.environ)
    """
    assert printed(script, folder=tmp_path) == "{'two': 0} False\n"
    assert (tmp_path / "one.log").read_text() == "['MORE', 'OTHER'] True 2\n"
    assert (tmp_path / "two.log").read_text() == "['MORE'] True 1\n"


def test_a_program_ends_with_the_code_that_it_would_have_alone(tmp_path: Path) -> None:
    script = """
    def fails(words):
        raise ValueError("why")

    program("nothing", lambda words: None)
    program("number", lambda words: 3)
    program("exits", lambda words: sys.exit(4))
    program("sentence", lambda words: sys.exit("no luck"))
    program("object", lambda words: sys.exit(["no", "luck"]))
    program("none", lambda words: sys.exit(None))
    program("fails", fails)
    print(sorted(ended(7).items()))
    """
    codes = [("exits", 4), ("fails", 1), ("none", 0), ("nothing", 0), ("number", 3), ("object", 1), ("sentence", 1)]
    assert printed(script, folder=tmp_path) == f"{codes}\n"
    assert (tmp_path / "sentence.log").read_text() == "no luck\n"
    assert (tmp_path / "object.log").read_text() == "['no', 'luck']\n"
    assert (tmp_path / "fails.log").read_text().endswith("\nValueError: why\n")
    assert (tmp_path / "number.log").read_text() == ""


def test_a_log_is_for_its_user_alone(tmp_path: Path) -> None:
    assert printed('program("one", lambda words: print("a")); ended(1)', folder=tmp_path) == ""
    assert (tmp_path / "one.log").stat().st_mode & 0o777 == 0o600


def test_the_end_of_a_program_whose_log_cannot_be_written_is_reported(tmp_path: Path) -> None:
    script = """
    def main(words):
        try:
            print("on a full disk")
        except OSError:
            return 3

    full = Program("full", words=(), environ={}, log=Path("/dev/full"))
    full.start(main, ended=lambda code: codes.put(("full", code)))
    print(ended(1))
    try:
        full.output.close()
    except OSError as error:
        print(error.strerror)
    """
    assert printed(script, folder=tmp_path) == "{'full': 3}\nNo space left on device\n"


def test_a_program_without_a_thread_is_refused_and_its_log_closed(tmp_path: Path) -> None:
    script = """
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    threading.Thread.start = refuse
    one = Program("one", words=(), environ={}, log=Path("one.log"))
    try:
        one.start(print, ended=print)
    except OSError as error:
        print(error.strerror, one.output.closed)
    """
    assert printed(script, folder=tmp_path) == "can't start new thread True\n"


SERVED = """
async def serve(args, settings, stop):
    logging.getLogger("served").warning("begins")
    begun.put(settings.history_url)
    await stop.wait()

def main(words):
    return serving.run(serve, args=serving.parser("x", description="x").parse_args(words))

begun = queue.Queue()
"""


def test_a_deployable_ends_when_its_process_asks_it_and_reads_its_own_settings(tmp_path: Path) -> None:
    script = """
    one = program("one", main, DOVETAIL_HISTORY_URL="sqlite:////one.db")
    two = program("two", main, DOVETAIL_HISTORY_URL="sqlite:////two.db")
    print(sorted(begun.get(timeout=60) for _ in range(2)))
    one.end()
    print(ended(1))
    two.end()
    print(ended(1))
    """
    text = printed(SERVED + textwrap.dedent(script), folder=tmp_path)
    assert text == "['sqlite:////one.db', 'sqlite:////two.db']\n{'one': 0}\n{'two': 0}\n"
    for name in ("one", "two"):
        events = [json.loads(line)["event"] for line in (tmp_path / f"{name}.log").read_text().splitlines()]
        assert events == ["begins", "stopping"]


def test_a_program_that_is_asked_before_it_listens_ends(tmp_path: Path) -> None:
    script = """
    asked = threading.Event()
    one = program("one", lambda words: asked.wait(60) and main(words))
    one.end()
    asked.set()
    print(ended(1))
    """
    assert printed(SERVED + textwrap.dedent(script), folder=tmp_path) == "{'one': 0}\n"


def test_a_wrong_command_line_or_configuration_is_said_in_the_programs_own_log(tmp_path: Path) -> None:
    script = """
    program("word", main, "--nonsense")
    program("variable", main, DOVETAIL_LOG_LEVEL="loud")
    print(sorted(ended(2).items()))
    """
    assert printed(SERVED + textwrap.dedent(script), folder=tmp_path) == "[('variable', 2), ('word', 2)]\n"
    assert "unrecognized arguments: --nonsense" in (tmp_path / "word.log").read_text()
    assert "log_level" in (tmp_path / "variable.log").read_text()


def test_a_program_that_computes_without_end_keeps_no_other_from_answering(tmp_path: Path) -> None:
    script = """
    done = threading.Event()

    def busy(words):
        while not done.is_set():
            sum(range(1000))

    async def answer(args, settings, stop):
        for _ in range(200):
            await asyncio.sleep(0)
            await asyncio.to_thread(int)
        done.set()

    program("busy", busy)
    program("answers", lambda words: serving.run(answer, args=serving.parser("x", description="x").parse_args([])))
    print(sorted(ended(2).items()))
    """
    assert printed(script, folder=tmp_path) == "[('answers', 0), ('busy', 0)]\n"
