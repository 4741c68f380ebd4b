"""Kubeconfig files, merged and read as kubectl does it; each mistake is one sentence that names the field."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.auth.kubeconfig import choose
from dovetail.kube.errors import KubeconfigError
from tests.core.kube.auth.kubeconfigs import make_kubeconfig


def test_of_equal_names_the_first_file_counts(tmp_path: Path) -> None:
    first, second = (
        make_kubeconfig(tmp_path / "1", name="a"),
        make_kubeconfig(tmp_path / "2", name="a", server="https://x"),
    )
    assert choose([first, second]).cluster.server == "https://a:6443"


def test_the_first_current_context_counts_and_an_empty_one_is_none(tmp_path: Path) -> None:
    a, b = make_kubeconfig(tmp_path / "a", name="a"), make_kubeconfig(tmp_path / "b", name="b")
    unset = tmp_path / "unset"
    unset.write_text("current-context: ''")
    empty = tmp_path / "empty"
    empty.touch()
    assert choose([empty, unset, a, b]).context == "a"


def test_a_context_may_be_spread_over_files_whose_folders_its_paths_start_at(tmp_path: Path) -> None:
    write(tmp_path / "x" / "contexts", {"contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}]})
    write(
        tmp_path / "y" / "clusters",
        {"clusters": [{"name": "c", "cluster": {"server": "https://s", "certificate-authority": "ca"}}]},
    )
    write(
        tmp_path / "z" / "users", {"users": [{"name": "u", "user": {"client-certificate": "crt", "client-key": "key"}}]}
    )
    for path in ("y/ca", "z/crt", "z/key"):
        (tmp_path / path).write_text(path)
    choice = choose([tmp_path / "x/contexts", tmp_path / "y/clusters", tmp_path / "z/users"], context="a")
    assert (choice.ca(), choice.client_certificate()) == ("y/ca", ("z/crt", "z/key"))


def test_mistakes_of_other_contexts_do_not_matter(tmp_path: Path) -> None:
    path = make_kubeconfig(tmp_path / "k")
    document = yaml.safe_load(path.read_text())
    document["users"].append({"name": "other", "user": {"token": 3}})
    document["clusters"].append({"name": "other", "cluster": None})
    write(path, document)
    assert choose([path]).user.token == "token-main"


CLUSTER = (
    "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: %s}]"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not YAML: while parsing"),
        ("\x00", "is not YAML: "),
        ("clusters: 3", r"is not a kubeconfig: Expected `array \| null`, got `int` - at `\$.clusters`"),
        ("contexts: [{name: a}]", "no current-context is set; contexts are a"),
        ("current-context: b\ncontexts: [{name: a}]", 'no context "b"; contexts are a'),
        ("", "no current-context is set; contexts are none"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
            'context "a" names the unknown cluster "c"',
        ),
        (CLUSTER % "{server: 'https://x'}", 'context "a" names the unknown user "u"'),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c}]",
            'cluster "c" has the server ""; it must be an https:// or http:// address',
        ),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: [c]}}]",
            r'context "a" cannot be read: Expected `str`, got `array` - at `\$.cluster`',
        ),
    ],
)
def test_a_wrong_file_is_one_sentence_with_the_field(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=f"{path}: {sentence}"):
        choose([path])


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"server": "x:6443"}, 'cluster "main" has the server "x:6443"; it must be an https'),
        ({"server": "https://"}, 'cluster "main" has the server "https://"; it must be an https'),
        ({"proxy-url": "socks5://me:secret@x"}, 'cluster "main" has a proxy-url that begins with "socks5"; it must'),
        (
            {"insecure-skip-tls-verify": "yes"},
            r"cluster \"main\" cannot be read: Expected `bool`.*insecure-skip-tls-verify",
        ),
        ({"certificate-authority": "gone"}, "gone: certificate-authority of .* cannot be read: No such file"),
        ({"certificate-authority-data": "%"}, "certificate-authority-data is not a PEM text in base64"),
    ],
)
def test_a_wrong_cluster_is_one_sentence_without_secrets(
    tmp_path: Path, cluster: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(KubeconfigError, match=sentence) as caught:
        choose([make_kubeconfig(tmp_path / "k", **cluster)]).ca()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ({"client-certificate-data": "%%"}, "client-certificate-data is not a PEM text in base64"),
        ({"client-key": "missing.key"}, "missing.key: client-key of .* cannot be read: No such file"),
        (
            {"client-certificate-data": "UEVN"},
            'user "main" has one of client-certificate and client-key; TLS needs both',
        ),
        ({"token": 3}, r'user "main" cannot be read: Expected `str \| null`, got `int` - at `\$.token`'),
        ({"username": "me", "password": "x"}, 'user "main" logs in by username'),
        ({"token": "t", "as": "root"}, 'user "main" uses "as"'),
        ({"auth-provider": {"name": "gcp"}}, 'user "main" uses the auth-provider "gcp", which Kubernetes 1.26 removed'),
    ],
)
def test_wrong_credentials_are_one_sentence(tmp_path: Path, user: dict[str, Any], sentence: str) -> None:
    with pytest.raises(KubeconfigError, match=sentence):
        choose([make_kubeconfig(tmp_path / "k", user=user)]).client_certificate()


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=f"{tmp_path}/a, {tmp_path}/b: no such kubeconfig"):
        choose([tmp_path / "a", tmp_path / "b"])


def test_a_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=f"{tmp_path}: cannot be read: Is a directory"):
        choose([tmp_path])


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("extensions", "url"),
    [
        ([{"name": "dovetail.dev/gateway", "extension": {"url": "https://127.0.0.1:8443"}}], "https://127.0.0.1:8443"),
        ([{"name": "dovetail.dev/gateway", "extension": {"url": None}}], ""),
        ([{"name": "dovetail.dev/gateway"}], ""),
        ([{"name": "other", "extension": {"url": "https://elsewhere"}}], ""),
        (None, ""),
    ],
)
def test_a_context_names_its_gateway_or_none(tmp_path: Path, extensions: Any, url: str) -> None:
    path = make_kubeconfig(tmp_path / "k")
    document = yaml.safe_load(path.read_text())
    document["contexts"][0]["context"]["extensions"] = extensions
    write(path, document)
    assert choose([path]).gateway_url == url
