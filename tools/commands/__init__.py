"""The usage, options and examples on docs/commands.md, as the commands declare them: `python -m tools.commands`.

A block of the page begins with `<!-- command: gjob log -->` and ends with `<!-- end -->`. What is between is generated;
the prose around is not. What an option means is its help, or a longer text in `meanings.toml`.
"""
