"""Options that several commands share, as typer reads them. Declarations only."""

from typing import Annotated, Final

import typer

from dovetail_cli.ui.output import FORMATS

# Small, and has a shell and `sleep`: enough to try the queue out. Real work names its own.
DEFAULT_IMAGE: Final = "busybox:1.37"
FORMATS_TEXT: Final = ", ".join(FORMATS)
# One thing and not a list: CSV has no rows for it.
DOCUMENTS: Final = ("table", "json", "yaml")

Kubeconfig = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig to use [$KUBECONFIG, else the default sandbox]."),
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Namespace [that of the kubeconfig's context].")
]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help=f"One of {FORMATS_TEXT}.")]
OutputOfOne = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help=f"One of {', '.join(DOCUMENTS)}.")]
