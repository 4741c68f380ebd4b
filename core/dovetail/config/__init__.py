"""The configuration of every deployable, `gpu_config.yaml`: what it may say, and what is wrong with it.

errors     ConfigError; importing it costs nothing
settings   Settings and load_settings; pydantic comes with them
document   the default configuration as a commented YAML text
"""
