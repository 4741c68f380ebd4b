"""The configuration of all deployables, `gpu_config.yaml`: its keys, and the errors in it.

errors       ConfigError; its import is cheap
settings     Settings; its import takes pydantic
keys         the keys by subject
loading      settings from command line, environment and file
changes      what a running program takes of a new configuration
growing      the settings of pools that grow
groups       settings that are grouped under one key, and the types of fields
reference    all keys as rows, for a table
messages     validation errors as one sentence
credentials  URLs with a credential, which do not belong in the file
template     the default configuration as commented YAML
"""
