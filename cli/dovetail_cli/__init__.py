"""The command-line tools. Modules here parse and print; the core computes the answers."""
