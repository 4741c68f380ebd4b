"""The guides of the systems that Dovetail replaces, as a contract: every block runs, and its answers are compared.

`manifest.toml` has each block's digest and what is expected of it; the guides themselves are in the folder
`DOVETAIL_GUIDES`.
"""
