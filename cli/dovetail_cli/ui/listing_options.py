"""Options of the commands that show things, declared without typer."""

from typing import Annotated, Final

from dovetail_cli.ui import completers
from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.output import FORMATS

KUBECONFIG: Final = option(
    "--kubeconfig", metavar="FILE", help="Kubeconfig to use [$KUBECONFIG, else the default sandbox]."
)
CONTEXT: Final = option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
NAMESPACE: Final = option(
    "--namespace", metavar="NAME", help="Namespace [that of the kubeconfig's context].", complete=completers.NAMESPACES
)
OUTPUT: Final = option("-o", "--output", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")
GATEWAY: Final = option(
    "--gateway",
    metavar="URL",
    help="The gateway to ask if you may not list everything [DOVETAIL_GATEWAY, or that of your profile].",
)

Kubeconfig = Annotated[str | None, KUBECONFIG]
Context = Annotated[str | None, CONTEXT]
Namespace = Annotated[str | None, NAMESPACE]
Output = Annotated[str, OUTPUT]
Gateway = Annotated[str | None, GATEWAY]
