"""Settings from command line, environment and file, and what is wrong with them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from dovetail.config.credentials import exposed
from dovetail.config.errors import ConfigError
from dovetail.config.messages import Source, explain, problems
from dovetail.config.settings import ENV_PREFIX, Settings
from dovetail.formats.suggestions import suggestion
from dovetail.formats.yaml_text import YAMLTextError, load_yaml


def load_settings(path: Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Load settings from `overrides` (the command line), environment, file and defaults.

    The first source that has a key wins. The environment has `DOVETAIL_LOG_LEVEL=debug`,
    `DOVETAIL_SCORE_WEIGHTS__CPU=0.3`, and maps as JSON. Overrides that are None count as not given. Raises
    `ConfigError`, also for a file with a credential.
    """
    name = str(path) if path else "gpu_config.yaml"
    return _merged(Source(name, values={} if path is None else _file(path)), overrides=overrides)


def parse_settings(text: str, *, origin: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read settings as `load_settings` does, with the `text` of a file whose name in errors is `origin`."""
    return _merged(Source(origin, values=document(text, origin=origin)), overrides=overrides)


def check_values(values: Mapping[str, Any], *, origin: str) -> Settings:
    """The settings of a file's values alone, without command line and environment. Raises `ConfigError`."""
    if problem := exposed(values):
        raise ConfigError(origin, problem=problem)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise explain(error, model=Settings, sources=[Source(origin, values=values)]) from error


def problems_in(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with a file's values: a sentence for each key; none if programs take them."""
    if problem := exposed(values):
        return [problem]
    try:
        Settings(**values)
    except ValidationError as error:
        return problems(error, model=Settings)
    return []


def _merged(file: Source, *, overrides: Mapping[str, Any] | None) -> Settings:
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    sources = (
        Source("command line", values=given),
        Source("environment", values=_environment(), env_prefix=ENV_PREFIX),
        file,
    )
    if problem := exposed(sources[2].values):
        raise ConfigError(sources[2].name, problem=problem)
    merged = _merge(_merge(sources[2].values, high=sources[1].values), high=sources[0].values)
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise explain(error, model=Settings, sources=sources) from error


def _merge(low: Mapping[str, Any], *, high: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merge(low[key], high=high[key]) for key in low.keys() & high.keys() if _maps(low[key], high[key])}
    return {**low, **high, **both}


def _maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _environment() -> dict[str, Any]:
    class FromVariables(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX)

    _refuse_misspelt(os.environ)
    try:
        return EnvSettingsSource(FromVariables, env_nested_delimiter="__", env_ignore_empty=True)()
    except SettingsError as error:
        raise ConfigError("environment", problem=f"{error}; maps are written as JSON") from error


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    # Other variables with our prefix are not ours: Kubernetes itself sets DOVETAIL_..._SERVICE_HOST.
    known = [ENV_PREFIX + key.upper() for key in Settings.model_fields]
    for name in environ:
        top = name.upper().split("__")[0]
        if top.startswith(ENV_PREFIX) and top not in known and (hint := suggestion(top, known=known, cutoff=0.9)):
            raise ConfigError(name, problem=f"unknown variable{hint}")


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), problem=f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), problem=f"is not YAML: {' '.join(str(error).split())}") from error
    return document(text, origin=str(path))


def document(text: str, *, origin: str) -> dict[str, Any]:
    """The keys and values in the text of a `gpu_config.yaml`. Raises `ConfigError`."""
    try:
        found = load_yaml(text)
    except YAMLTextError as error:
        raise ConfigError(origin, problem=f"is not YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(origin, problem=f"must be a map of keys and values, not {type(found).__name__}")
    return {str(key): value for key, value in found.items()}
