"""The URLs of a configuration that contain a credential, and where such a URL belongs. Pure.

`gpu_config.yaml` is a ConfigMap that every account of the cluster may read: the commands need most of it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

# By key: the chart's value that names a Secret with the URL.
SECRETS: Final = {
    "history_url": "history.secretName",
    "samples_url": "history.secretName",
    "notify_url": "notify.secretName",
}

# Wider than the grammar of URLs: a password may contain characters without the required escapes.
_USER_AND_PASSWORD: Final = re.compile(r"://[^@]*:[^@]*@")
_IN_QUERY: Final = re.compile(r"pass(word|wd|phrase)|secret|token", re.IGNORECASE)
_WEBHOOK: Final = re.compile(r"https?://", re.IGNORECASE)
# A host alone: the path of a webhook is enough to call it.
_BARE_WEBHOOK: Final = re.compile(r"https?://[^/?#@]+/?", re.IGNORECASE)


def credential_in(url: str) -> str:
    """The credential in the URL, in a few words that do not repeat it; empty for none."""
    if _USER_AND_PASSWORD.search(url):
        return "a password before its host"
    if _IN_QUERY.search(unquote_plus(url.partition("?")[2])):
        return "a password in its query"
    if _WEBHOOK.match(url) and not _BARE_WEBHOOK.fullmatch(url):
        return "a path, which is what authorizes the caller of a webhook"
    return ""


def exposed(values: Mapping[str, Any]) -> str:
    """Why these values must not be in a file that every account may read; empty where they may."""
    for key, secret in SECRETS.items():
        url = values.get(key)
        if isinstance(url, str) and (found := credential_in(url)):
            return (
                f"{key} has {found}, and every account of the cluster may read this file: put the URL into a Secret "
                f"that the chart's value {secret} names, or into the environment variable DOVETAIL_{key.upper()}"
            )
    return ""
