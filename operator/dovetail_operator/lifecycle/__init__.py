"""An observation in; stage, status and actions out. Pure."""
