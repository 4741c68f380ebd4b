"""gbatch's work: the command from words, files and standard input; submission; output."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster import this_machine
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.submit import (
    attachments,
    config_file,
    create,
    manifest,
    on_cluster,
    scripts,
    terminal,
)
from dovetail_cli.submit import dependencies as depending
from dovetail_cli.submit import local as local_node
from dovetail_cli.submit.profiles import console_page
from dovetail_cli.submit.profiles.effective import gateway_of
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError

if TYPE_CHECKING:
    from dovetail.answers.questions import DryRun
    from dovetail.sdk.calls.call import Call

_UNSAID: Final = (
    "Where and when it would start is not said: that takes the right to list the cluster's nodes and pods, or the "
    "URL of its gateway: `dovetail config set gateway URL`."
)
_ALONG: Final[Mapping[str, str]] = {"config": "the file of --config", "directory": "the working directory"}


class Then(Protocol):
    """What follows a submission, with the same connection."""

    async def __call__(self, cluster: Cluster, *, job: GPUJob) -> None:
        """Go on with the job, which has its number."""


def submit(
    submission: manifest.Submission,
    *,
    after: depending.Wanted | None,
    file: config_file.ConfigFile | None,
    local: local_node.Local,
    asked: on_cluster.Asked,
    dry_run: bool,
    wait_for_capacity: bool,
    form: str,
    namespace: str | None,
    then: Then | None = None,
    through: Callable[[Sequence[str]], list[str]] | None = None,
) -> None:
    """Submit the job and print its number; do what comes `then`.

    On this machine, its command runs `through` another.

    It starts `after` others; `file` is submitted with it. `local` counts on a local node, `asked` on a cluster.

    With `dry_run` let the API server check it, and say where and when it would start: as JSON, the answer of REST v3.
    A job that no node could ever run is refused, unless it may `wait_for_capacity`.
    """

    steps = _Steps(
        submission=submission,
        after=after,
        file=file,
        local=local,
        asked=asked,
        dry_run=dry_run,
        wait_for_capacity=wait_for_capacity,
        form=form,
        then=then,
        through=through,
    )
    work(steps.run, kubeconfig=asked.kubeconfig, context=asked.context, namespace=namespace, brief=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """One submission, step by step; `submit` describes the fields."""

    submission: manifest.Submission
    after: depending.Wanted | None
    file: config_file.ConfigFile | None
    local: local_node.Local
    asked: on_cluster.Asked
    dry_run: bool
    wait_for_capacity: bool
    form: str
    then: Then | None
    through: Callable[[Sequence[str]], list[str]] | None

    async def run(self, cluster: Cluster) -> None:
        # 1. All values: those of this machine, or of the profile.
        prepared = await self._prepared(cluster)
        # 2. The jobs that it waits for.
        wanted = await self._after_others(prepared.submission, cluster=cluster)
        # 3. The object, and what goes along with it.
        job = manifest.with_slurm_variables(manifest.build(wanted, namespace=cluster.namespace))
        await create.check_free(cluster, name=job.metadata.name)
        sent = await on_cluster.completed(
            job, prepared=prepared, asked=self.asked, cluster=cluster, dry_run=self.dry_run
        )
        attached = self._attached(sent, cluster=cluster)
        # 4. Its check alone, or the job itself and the queue's answer.
        if self.dry_run:
            found = await _checked(
                sent.job, attached=attached, profile=self.asked.profile, cluster=cluster, form=self.form
            )
            print(found)
            return
        numbered = await self._created(sent.job, attached=attached, cluster=cluster)
        if self.then is not None:
            await self.then(cluster, job=numbered)

    async def _prepared(self, cluster: Cluster) -> on_cluster.Prepared:
        data = cluster.client.connection.local_data
        if data is None:
            prepared = await on_cluster.prepare(self.submission, asked=self.asked, files=self.local, cluster=cluster)
            if prepared.directory is None:
                check_program(self.submission.command)
            return prepared
        if self.asked.interactive:
            terminal.check(self.submission, files=self.local)
        wanted = local_node.for_local_node(
            self.submission, asked=self.local, data=data, along=self.file, dry_run=self.dry_run
        )
        if self.through is not None:
            wanted = replace(wanted, command=self.through(wanted.command))
        return on_cluster.Prepared(submission=wanted)

    async def _after_others(self, wanted: manifest.Submission, *, cluster: Cluster) -> manifest.Submission:
        if self.after is None:
            return wanted
        dependencies = await depending.resolve(self.after, cluster=cluster)
        return replace(wanted, dependencies=dependencies, any_dependency=self.after.any_one)

    def _attached(self, sent: attachments.Sent, *, cluster: Cluster) -> list[attachments.Attachment]:
        # A local node gets the file itself, a cluster a ConfigMap.
        along = [] if self.file is None or this_machine.is_one(cluster) else [self.file]
        return [*along, *sent.attached]

    async def _created(self, job: GPUJob, *, attached: Sequence[attachments.Attachment], cluster: Cluster) -> GPUJob:
        """The job with its number, which is printed; the queue's answer is on standard error."""
        created = await attachments.create_with(cluster, job=job, attached=attached)
        numbered = await create.until_numbered(cluster, job=created)
        answer = this_machine.answer(cluster, answer=await create.until_answered(cluster, job=numbered))
        if not self.wait_for_capacity:
            await create.refuse_if_hopeless(cluster, job=numbered, answer=answer)
        page = console_page.page_of(cluster, job=numbered) if sys.stderr.isatty() else None
        create.announce(numbered, answer=answer, page=page, waits_on_failure=self.submission.wait_on_failure)
        print(create.submitted(numbered, form=self.form), flush=True)
        return numbered


def script_of(words: Sequence[str]) -> scripts.Script | None:
    """The script that gbatch's words name; None for a command.

    Raises `MissingError` if it does not exist.
    """
    first = words[0]
    if first == "-":
        return scripts.read_script(sys.stdin.buffer.read(), name="stdin")
    if Path(first).is_file():
        data = Path(first).read_bytes()
        return None if scripts.is_program(data) else scripts.read_script(data, name=first)
    if first.startswith(("./", "../")) or first.endswith((".sh", ".slurm", ".sbatch")):
        raise MissingError(f"{first}: no such script here")
    return None


def command_of(
    words: Sequence[str], *, script: scripts.Script | None, file: config_file.ConfigFile | None = None
) -> list[str]:
    """The container's command for gbatch's words.

    Raises `UsageError` for a script that no program here can run, and for a command that names no program.

    A `file` that goes along is handed to it, unless the words or the script say where they want it.
    """
    if script is None:
        if words and not words[0].strip():
            raise UsageError(f'command "{words[0]}": write a program and its arguments, such as python train.py')
        return scripts.plain_command(words, arguments=config_file.arguments(file, words=words))
    return scripts.script_command(
        script, arguments=[*words[1:], *config_file.arguments(file, words=[script.text, *words])]
    )


def check_program(command: Sequence[str]) -> None:
    """Refuse a compiled program of this machine for a cluster.

    The working directory, in which it might travel, does not go along.

    A program with an absolute path can be the image's. Raises `UsageError`.
    """
    first = Path(command[0])
    if not first.is_absolute() and first.is_file() and scripts.is_program(first.read_bytes()):
        raise UsageError(f"{command[0]} is a program of this machine: programs belong into the image")


async def _checked(
    job: GPUJob, *, attached: Sequence[attachments.Attachment], profile: str | None, cluster: Cluster, form: str
) -> str:
    import msgspec

    from dovetail_cli.cluster import gateway as gateways

    job = attachments.preview(job, attached=attached)
    created = await create.create(cluster, job=job, dry_run=True)
    wanted = create.as_manifest(job)
    if attached and form == "yaml":
        along = " and ".join(_ALONG[each.purpose] for each in attached)
        verb = "are" if len(attached) > 1 else "is"
        print(f"dovetail: {along} {verb} no part of the manifest: gbatch copies them in", file=sys.stderr)
    match form:
        case "json":
            found = await _foretold(created, profile=profile, cluster=cluster)
            return output.as_json(msgspec.to_builtins(found))
        case "yaml":
            return output.as_yaml(wanted)
        case _:
            would = f"Job {wanted['metadata']['name']} would be submitted (-o yaml shows it)."
            try:
                text = (await _foretold(created, profile=profile, cluster=cluster)).text
                text = this_machine.said(text) if this_machine.is_one(cluster) else text
            except gateways.UnansweredError:
                text = _UNSAID
            return output.wrapped(f"{would}\n{text}", hang=0)


async def _foretold(job: GPUJob, *, profile: str | None, cluster: Cluster) -> "DryRun":
    """The queue's answer.

    Raises `UnansweredError`, and `CommandError` for a request that is invalid.
    """
    from dovetail.query.dry_run import dry_run
    from dovetail_cli.cluster import gateway as gateways
    from dovetail_cli.cluster import snapshot
    from dovetail_cli.ui import progress, times

    async def here() -> "DryRun":
        with progress.patiently() as say:
            return dry_run(job, objects=await snapshot.take(cluster, say=say), now=times.utc_now())

    async def there() -> "Call[DryRun]":
        from dovetail.sdk.calls import v3

        return v3.dry_run(cluster.namespace, spec=create.as_manifest(job)["spec"])

    found = await gateways.answered(cluster, here=here, there=there, url=lambda: gateway_of(cluster, profile=profile))
    if found.outcome == "Invalid":
        raise CommandError(found.text)
    return found
