"""The notebook of the examples, run by a kernel without a browser."""

from pathlib import Path
from typing import Any, Final

NOTEBOOK: Final = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def executed(folder: Path) -> Any:
    """The notebook after its cells have run one after another. The kernel has this process's environment."""
    # Only here: they load a validator of JSON, which takes each process of a test run a second.
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs_of(notebook: Any) -> dict[str, list[Any]]:
    """The outputs of each cell with code, by its last line."""
    return {cell["source"].splitlines()[-1]: cell["outputs"] for cell in notebook.cells if cell.cell_type == "code"}
