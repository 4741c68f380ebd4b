"""gbatch's options over a profile. Pure."""

from dataclasses import replace

from dovetail.names import UNUSED_IMAGE
from dovetail_cli.submit.manifest import Fallback, Submission
from dovetail_cli.submit.profiles.profile import Profile
from dovetail_cli.ui.errors import UsageError


def with_defaults(submission: Submission, *, profile: Profile, simulated: bool = False) -> Submission:
    """The submission with the profile's values where no option sets them.

    Variables, labels and volumes are merged: by name, key and path. Where the nodes are simulated, any image is as good
    as another. Raises `UsageError` for a job without an image elsewhere.
    """
    paths = {each.path for each in submission.volumes}
    return replace(
        submission,
        image=submission.image or profile.image or _no_image(simulated=simulated),
        env={**profile.env, **submission.env},
        volumes=(*submission.volumes, *(each for each in profile.volumes if each.path not in paths)),
        node_selector={**profile.node_selector, **submission.node_selector},
        workdir=submission.workdir or profile.workdir,
        fallback=_fallback(submission, profile=profile),
    )


def _fallback(submission: Submission, *, profile: Profile) -> Fallback:
    """The option's, else the profile's for a job that requests GPUs."""
    wants_default = submission.request is not None and submission.fallback.on_no_gpu is None
    return profile.cpu_fallback if wants_default and profile.cpu_fallback is not None else submission.fallback


def _no_image(*, simulated: bool) -> str:
    if simulated:
        return UNUSED_IMAGE
    raise UsageError(
        "the job has no container image: name one with --image IMAGE, or once for all your jobs with "
        "`dovetail config set image IMAGE`, such as python:3.12"
    )
