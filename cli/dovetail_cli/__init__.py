"""The commands that people type. Modules here print; what they know they ask the core."""
