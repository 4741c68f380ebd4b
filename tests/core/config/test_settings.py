import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dovetail.config.credentials import exposed
from dovetail.config.errors import ConfigError
from dovetail.config.groups import PreemptionRules, ScoreWeights
from dovetail.config.loading import load_settings
from dovetail.config.settings import Settings
from dovetail.config.template import default_yaml
from dovetail.engine.model.ranking import Range, Rankings
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Weights
from dovetail.gpu.models import known_families, memory_mib
from dovetail.logs import FORMATS, LEVELS
from dovetail.query.preemption_rules import move_rules_of


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "gpu_config.yaml"
        path.write_text(text)
        return path

    return write


def test_without_any_source_there_are_the_defaults() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert (settings.monitor_update_interval, settings.heartbeat_interval) == (30, 300)
    assert (settings.policy, settings.guard_fraction, settings.tenants_per_device) == ("Balanced", 0.8, 4)


def test_the_weights_are_those_of_the_engine() -> None:
    assert Settings().rankings == Rankings()
    weights = Settings(score_weights=ScoreWeights(cpu=7)).rankings.of("anywhere").weights
    assert weights == replace(DEFAULT_WEIGHTS, cpu=7)


def test_command_line_wins_over_environment_over_file(write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("log_level: error\npolicy: Pack\nmonitor_update_interval: 10\ntenants_per_device: 2\n")
    monkeypatch.setenv("DOVETAIL_LOG_LEVEL", "warning")
    monkeypatch.setenv("DOVETAIL_POLICY", "Spread")
    settings = load_settings(path, overrides={"log_level": "DEBUG", "tenants_per_device": None})
    assert (settings.log_level, settings.policy) == ("debug", "Spread")
    assert (settings.monitor_update_interval, settings.tenants_per_device) == (10, 2)


def test_a_map_is_merged_key_by_key(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_SCORE_WEIGHTS__CPU", "0.7")
    weights = load_settings(write("score_weights: {memory: 2}")).score_weights
    assert (weights.cpu, weights.memory, weights.utilization) == (0.7, 2, 0.4)


@pytest.mark.parametrize(("text", "fraction"), [("0.7", 0.7), ("'0.7'", 0.7), ("1", 1.0), ("Dynamic", 0.8)])
def test_the_memory_guard_is_a_name_or_a_fraction(write, text: str, fraction: float) -> None:
    assert load_settings(write(f"memory_guard: {text}\n")).limits.guard_fraction == fraction


def test_a_map_by_priority_has_numbers_or_texts_as_keys(write) -> None:
    rules = move_rules_of(load_settings(write('moves: {patience: {100: 60, "0": 3600}}')).moves)
    assert [rules.waits_seconds(priority) for priority in (0, 99, 100)] == [3600, 3600, 60]


def test_the_environment_has_a_fraction_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_MEMORY_GUARD", "0.7")
    assert load_settings().memory_guard == "0.7"


def test_own_models_and_vendors_are_added_to_the_known_ones(write) -> None:
    settings = load_settings(write("gpu_memory_specs: {X9: 12.5}\ngpu_resource: {own: example.com/card}\n"))
    assert (settings.gpu_memory_specs["X9"], settings.gpu_memory_specs["V100"]) == (12.5, 32)
    assert (settings.gpu_resource["own"], settings.gpu_resource["amd"]) == ("example.com/card", "amd.com/gpu")


def test_the_engine_gets_own_models_by_family(write) -> None:
    specs = load_settings(write("gpu_memory_specs: {NVIDIA X9: 12.5}\n")).limits.memory_specs
    assert (specs["X9"], specs["V100"]) == (12.5, 32)


def test_the_table_of_models_is_the_projects_one() -> None:
    table = {family: gigabytes * 1024 for family, gigabytes in Settings().gpu_memory_specs.items()}
    assert table == {family: memory_mib(family) for family in known_families()}


def test_the_default_resource_may_be_a_short_name_of_ones_own(write) -> None:
    text = "gpu_resource: {own: example.com/card}\ndefault_gpu_resource_name: own\n"
    assert load_settings(write(text)).default_gpu_resource_name == "own"


def test_levels_and_formats_are_those_of_the_logging() -> None:
    for level in LEVELS:
        assert Settings(log_level=level).log_level == level
    for fmt in FORMATS:
        assert Settings(log_format=fmt).log_format == fmt


WRONG = {
    "moves: {patience: {300: 9}}": "moves.patience is {300: 9}, but must be a map of priorities (0 to 255) to seconds",
    "moves: {patience: {100: -1}}": ("moves.patience.100 is -1, but must be a whole number from 0 to 86400 (seconds)"),
    "log_levl: info": 'unknown key "log_levl"; did you mean "log_level"?',
    "score_weights: {cpuu: 1}": 'unknown key "score_weights.cpuu"; did you mean "cpu"?',
    "score_weights: {zzz: 1}": 'unknown key "score_weights.zzz"; the keys are utilization, memory, cpu, fragmentation',
    "score_weights: 3": "score_weights is 3, but must be a map with utilization, memory, cpu and fragmentation",
    "score_weights: {utilization: 0, memory: 0, cpu: 0, fragmentation: 0}": "score_weights is {'utilization': 0, "
    "'memory': 0, 'cpu': 0, 'fragmentation': 0}, but must be a map with utilization, memory, cpu and fragmentation, "
    "one of them above 0 at least",
    "score_weights: {cpu: -1}": "score_weights.cpu is -1, but must be a number from 0 to 100 (weight)",
    "namespace_score_weights: {vision: {cpu: 101}}": "namespace_score_weights.vision.cpu is 101, but must be a "
    "number from 0 to 100, or a map with min, max and default",
    "namespace_score_weights: {vision: {cpuu: 1}}": 'unknown key "namespace_score_weights.vision.cpuu"; did you mean',
    "namespace_score_weights: {cpu: {zzz: 1}}": 'unknown key "namespace_score_weights.cpu.zzz"; the keys are utiliz',
    "namespace_score_weights: {vision: {cpu: {low: 1}}}": 'unknown key "namespace_score_weights.vision.cpu.low"; the '
    "keys are min, max, default",
    "namespace_score_weights: {vision: {cpu: yes}}": "namespace_score_weights.vision.cpu is True, but must be a number",
    "namespace_score_weights: {vision: {cpu: {min: 2, max: 1}}}": "namespace_score_weights.vision.cpu.max is 1, but "
    "must be at least min, which is 2",
    "namespace_score_weights: {vision: {cpu: {max: 1, default: 2}}}": "namespace_score_weights.vision.cpu.default is "
    "2, but must be within its range, which is 0 to 1",
    "namespace_score_weights: 3": "namespace_score_weights is 3, but must be a map of namespaces to weights",
    "policy: Packs": 'policy is "Packs", but must be Spread, Pack or Balanced; did you mean "Pack"?',
    "namespace_policies: {team-a: dense}": 'namespace_policies.team-a is "dense", but must be Spread, Pack or Balanced',
    "namespace_policies: Pack": 'namespace_policies is "Pack", but must be a map of namespaces to policies',
    "fragmentation_policy: tuned": 'fragmentation_policy is "tuned", but must be ph, fgd or bestfit',
    "fragmentation_policy: fdg": 'fragmentation_policy is "fdg", but must be ph, fgd or bestfit; did you mean',
    "memory_guard: 1.5": 'memory_guard is "1.5", but must be Conservative, Aggressive, Dynamic or a fraction from 0.05 '
    "to 1, such as 0.7",
    "memory_guard: true": "memory_guard is True, but must be Conservative, Aggressive, Dynamic or a fraction from 0.05 "
    "to 1, such as 0.7",
    "memory_guard: conservative": 'memory_guard is "conservative", but must be Conservative, Aggressive, Dynamic or a '
    'fraction from 0.05 to 1, such as 0.7; did you mean "Conservative"?',
    "namespace_cpu_fallback: {ci: -1}": "namespace_cpu_fallback.ci is -1, but must be a whole number from 0 to "
    "31536000 (seconds)",
    "resource_change_threshold: 1.5": "resource_change_threshold is 1.5, but must be a number from 0 to 1 (ratio)",
    "resource_change_threshold: .nan": "resource_change_threshold is nan, but must be a number from 0 to 1 (ratio)",
    "monitor_update_interval: 0": "monitor_update_interval is 0, but must be a whole number from 1 to 3600 (seconds)",
    "idle: {after: -5}": "idle.after is -5, but must be a whole number from 0 to 2592000 (seconds)",
    "monitor_update_interval: 1.5": "monitor_update_interval is 1.5, but must be a whole number from 1 to 3600 "
    "(seconds)",
    "monitor_update_interval: yes": "monitor_update_interval is True, but must be a whole number from 1 to 3600 "
    "(seconds)",
    "gpu_memory_specs: {V100: 0}": "gpu_memory_specs.V100 is 0, but must be a number above 0 and up to 4096 (GB)",
    "gpu_memory_specs: [16]": "gpu_memory_specs is [16], but must be a map of model names to GB",
    "gpu_resource: {x: gpu}": 'gpu_resource.x is "gpu", but must be a resource name with a domain, such as amd.com/gpu',
    "default_gpu_resource_name: nvdia": 'default_gpu_resource_name is "nvdia", but must be a short name or a '
    "resource name of gpu_resource",
    "heartbeat_interval: 10": "heartbeat_interval is 10, but must be at least monitor_update_interval, which is 30 "
    "(seconds)",
    "measurement_max_age: 300": "measurement_max_age is 300, but must be more than heartbeat_interval, which is 300 "
    "(seconds)",
    "bind_deadline_seconds: 30": "bind_deadline_seconds is 30, but must be less than hold_ttl_seconds, which is 30 "
    "(seconds)",
    "log_level:": "log_level is empty, but must be debug, info, warning, error or critical",
    "- a": "must be a map of keys and values, not list",
    "a: [": "is not YAML: line 1, column 5: ",
    "1: 2": 'unknown key "1"; the keys are gpu_resource, default_gpu_resource_name,',
}


@pytest.mark.parametrize("text", list(WRONG))
def test_a_wrong_file_is_one_sentence_with_file_key_value_and_range(write, text: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as error:
        load_settings(path)
    assert str(error.value).startswith(f"{path}: {WRONG[text]}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"DOVETAIL_POLICY": "Pak"}, 'DOVETAIL_POLICY: policy is "Pak", but must be Spread, Pack or Balanced; did'),
        ({"DOVETAIL_SCORE_WEIGHTS__CPU": "x"}, 'DOVETAIL_SCORE_WEIGHTS__CPU: score_weights.cpu is "x", but must be'),
        ({"DOVETAIL_SCORE_WEIGHTS__GPU": "1"}, 'DOVETAIL_SCORE_WEIGHTS__GPU: unknown key "score_weights.gpu"; did'),
        ({"DOVETAIL_GPU_MEMORY_SPECS": "{"}, 'environment: error parsing value for field "gpu_memory_specs"'),
        ({"DOVETAIL_LOG_LEVL": "info"}, 'DOVETAIL_LOG_LEVL: unknown variable; did you mean "DOVETAIL_LOG_LEVEL"?'),
    ],
)
def test_a_wrong_variable_is_named(
    variables: Mapping[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error:
        load_settings()
    assert str(error.value).startswith(sentence)


def test_variables_that_kubernetes_sets_for_services_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_EXTENDER_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("DOVETAIL_POLICY", "")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    "text",
    [
        "history_url: postgresql://me:geheim@db/x",
        "history_url: postgresql://me:a/b@db/x",
        "history_url: postgresql://me@db/x?password=geheim",
        "history_url: postgresql://me@db/x?pass%77ord=geheim",
        "history_url: postgresql://me@db/x?dbname=password%3Dgeheim",
        "notify_url: smtps://me:geheim@mail",
        "notify_url: https://hooks.example.org/services/geheim",
        "notify_url: https://hooks.example.org/?key=geheim",
        "notify_url: HTTPS://geheim@hooks.example.org",
    ],
)
def test_a_credential_in_the_file_is_refused_with_where_it_belongs_and_never_repeated(write, text: str) -> None:
    path, (key, _, url) = write(text), text.partition(": ")
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert str(refused.value).startswith(f"{path}: {key} has a pa")
    assert f"the environment variable DOVETAIL_{key.upper()}" in str(refused.value)
    assert "geheim" not in str(refused.value)
    assert exposed({key: url})


def test_a_credential_in_the_environment_is_taken_also_where_the_file_has_none(
    write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_HISTORY_URL", "postgresql://me:geheim@db/x")
    monkeypatch.setenv("DOVETAIL_NOTIFY_URL", "https://hooks.example.org/services/geheim")
    settings = load_settings(write("notify_url: smtp://mail\nhistory_url: postgresql://me@/x?host=/run\n"))
    assert (settings.history_url[-11:], settings.notify_url[-6:]) == ("geheim@db/x", "geheim")


def test_a_domain_for_mails_is_a_domain(write) -> None:
    assert load_settings(write("notify_domains: [example.org, '*.example.org']")).notify_domains[1] == "*.example.org"
    for wrong in ("ada@example.org", "EXAMPLE.org", "*", "*.*.org", ".org"):
        with pytest.raises(ConfigError, match="notify_domains"):
            load_settings(write(f"notify_domains: ['{wrong}']"))


def test_a_namespace_may_have_a_policy_of_its_own(write) -> None:
    settings = load_settings(write("policy: Spread\nnamespace_policies: {team-a: Pack}"))
    rankings = settings.rankings
    assert (rankings.of("team-a").policy, rankings.of("team-b").policy) == ("Pack", "Spread")


def test_a_policy_in_capitals_is_the_same_policy(write) -> None:
    settings = load_settings(write("policy: SPREAD\nnamespace_policies: {team-a: PACK, team-b: balanced}"))
    named = [settings.rankings.of(namespace).policy for namespace in ("team-a", "team-b", "team-c")]
    assert named == ["Pack", "Balanced", "Spread"]
    for wrong in ("policy: Random", "namespace_policies: {team-a: RANDOM}", "policy: 1"):
        with pytest.raises(ConfigError, match="Spread"):
            load_settings(write(wrong))


def test_a_namespace_may_have_weights_and_bounds_of_its_own(write) -> None:
    settings = load_settings(
        write(
            "score_weights: {cpu: 0.5, memory: 0.1}\n"
            "namespace_score_weights:\n"
            "  vision: {fragmentation: {min: 0.2, max: 0.8, default: 0.6}, cpu: 0, memory: {min: 0.3}}\n"
        )
    )
    vision, other = settings.rankings.of("vision"), settings.rankings.of("speech")
    assert vision.weights == Weights(utilization=0.4, memory=0.3, cpu=0, fragmentation=0.6)
    assert vision.allowed == {
        "utilization": Range(), "memory": Range(low=0.3), "cpu": Range(low=0, high=0),
        "fragmentation": Range(low=0.2, high=0.8),
    }  # fmt: skip
    assert (other.weights.cpu, other.weights.memory, other.namespace) == (0.5, 0.1, "")


def test_a_wrong_option_is_told_from_the_command_line() -> None:
    with pytest.raises(ConfigError, match='command line: log_level is "loud", but must be debug, info'):
        load_settings(overrides={"log_level": "loud"})


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "missing.yaml")


def test_the_default_document_loads_to_the_defaults(write) -> None:
    assert load_settings(write(default_yaml())) == Settings()
    assert list(yaml.safe_load(default_yaml())) == list(Settings.model_fields)


def comment_of(key: str, *, lines: list[str]) -> str:
    """The comment above a key of the default document."""
    place = next(number for number, text in enumerate(lines) if text.strip().startswith(f"{key}:"))
    start = next(number for number in range(place - 1, -1, -1) if not lines[number].strip().startswith("#"))
    return " ".join(text.strip().removeprefix("# ") for text in lines[start + 1 : place])


def test_every_default_is_documented_with_its_unit_or_its_names() -> None:
    lines = default_yaml().splitlines()
    fields = {**Settings.model_fields, **ScoreWeights.model_fields, **PreemptionRules.model_fields}
    comments = {key: comment_of(key, lines=lines) for key in fields}
    assert {
        key: comments[key] for key, field in fields.items() if not comments[key].startswith(field.description)
    } == {}
    units = {key: field.json_schema_extra for key, field in fields.items() if "choices" not in field.json_schema_extra}
    assert {key: unit["unit"] for key, unit in units.items() if unit["unit"] not in comments[key]} == {}


def test_the_core_and_its_errors_come_without_pydantic() -> None:
    code = "import sys, dovetail, dovetail.config.errors, dovetail.logs; print('pydantic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
