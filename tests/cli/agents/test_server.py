"""The sentences of the server's errors."""

import pytest

from dovetail_cli.agents.reads import Answer
from dovetail_cli.ui.errors import UsageError


@pytest.mark.parametrize(
    ("of_command", "of_tool"),
    [
        ("to run it on the CPU: --cpu-fallback", "to run it on the CPU: cpu_fallback"),
        ('--nodes "0": 1 or more (--time too)', 'workers "0": 1 or more (time_limit too)'),
        ('--name "a--big": no name', 'name "a--big": no name'),
    ],
)
async def test_an_error_names_the_arguments_of_the_tool_and_leaves_values_alone(of_command: str, of_tool: str) -> None:
    # It takes longer than to collect the tests of a hundred files, and each process of a parallel run collects all.
    from mcp.server.mcpserver.exceptions import ToolError

    from dovetail_cli.agents.server import _in_sentences

    async def tool() -> Answer:
        raise UsageError(of_command)

    with pytest.raises(ToolError) as raised:
        await _in_sentences(tool)()
    assert str(raised.value) == of_tool
