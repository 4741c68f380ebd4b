// Submit: a job as one means it, judged by the queue while it is typed.
import { Send } from "lucide";
import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure, get, isSaid, jobPath, post } from "../../api/client";
import type { DryRun, JobDetails, JobRow, JobSpec } from "../../api/types";
import { Button } from "../../design/button";
import { Card } from "../../design/card";
import { Code } from "../../design/command";
import { Combobox } from "../../design/combobox";
import { Field, Input, Select, TextArea } from "../../design/field";
import { PageHead, Tabs } from "../../design/page";
import { notify } from "../../design/toast";
import { namespaces } from "../../live/store";
import { called } from "../../parts/basics";
import { Verdict } from "../../parts/verdict";
import { gbatchLine, manifest, RequestProblem, specOf, TYPING_MS } from "../../requests";
import { go, pathTo, setQuery, withQuery } from "../../router";
import { t } from "../../texts";
import { type FieldName, namespaceOf, needsImage, problemsOf, requestOf, soundPart, value } from "./form";
import { After, Variables, Volumes } from "./lists";

// While a form is open, its answer is renewed this often: the queue goes on.
const RENEWED_MS = 15_000;
// A job that could not be read is asked for again after this time.
const AGAIN_MS = 5_000;
const MODES = ["Exclusive", "Fractional", "TimeShared"];

export function SubmitPage() {
  const from = value("from");
  const base = useBase(from);
  // A field's problem is shown once the field was left.
  const left = useSignal<ReadonlySet<string>>(new Set());
  const answer = useAnswer(base);
  return (
    <>
      <PageHead title={t("submit")} lead={from ? t("submitClone", from) : t("submitHow")} />
      {base.problem && (
        <p role="alert" class="problem">
          {t("cloneUnread", from, base.problem)} <a href={withQuery({ from: "" })}>{t("withoutClone")}</a>
        </p>
      )}
      <div class="main-and-side submit">
        <Form base={base} left={left} />
        <div class="stack wide side">
          <Card title={t("verdict")}>
            <div aria-live="polite" class="stack">
              <Answer answer={answer} shown={left.value.has("gpu")} />
            </div>
          </Card>
          {base.known && <Written base={base.spec} />}
        </div>
      </div>
    </>
  );
}

// The job that is cloned, `namespace/name`. Before its spec is known, nothing is asked or submitted: it would be another job.
interface Base {
  of: string;
  spec: Partial<JobSpec>;
  problem: string;
  known: boolean;
}

function useBase(from: string): Base {
  const base = useSignal<Base>(baseOf("", {}));
  useEffect(() => {
    const stop = new AbortController();
    let again: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      const [namespace, name, ...more] = from.split("/");
      try {
        if (from && (!namespace || !name || more.length)) throw new RequestProblem(t("cloneForm"));
        const spec = namespace && name ? (await get<JobDetails>(jobPath(namespace, name), stop.signal)).spec : {};
        if (!stop.signal.aborted) base.value = baseOf(from, spec);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (isSaid(error)) base.value = { of: from, spec: {}, problem: error.message, known: false };
        if (error instanceof RequestProblem) return;
        again = setTimeout(() => void read(), AGAIN_MS);
      }
    };
    void read();
    return () => {
      clearTimeout(again);
      stop.abort();
    };
  }, [from]);
  return base.value.of === from ? base.value : { of: from, spec: {}, problem: "", known: false };
}

const baseOf = (of: string, spec: Partial<JobSpec>): Base => ({ of, spec, problem: "", known: true });

interface Asked {
  said: DryRun | null;
  problem: string;
  // Whether there is a request to judge.
  asks: boolean;
}

function useAnswer({ spec: base, problem: unread, known }: Base): Asked {
  const answer = useSignal<Omit<Asked, "asks">>({ said: null, problem: "" });
  const namespace = namespaceOf();
  const request = requestOf();
  const problems = problemsOf(request, base);
  const asks = !problems.gpu;
  const text = JSON.stringify([namespace, request, base]);
  useEffect(() => {
    if (!asks || !known) return;
    const stop = new AbortController();
    const ask = async () => {
      try {
        const spec = specOf(soundPart(request, problems), base);
        answer.value = { said: await post<DryRun>("/api/v3/dry-run", { namespace, spec }, { signal: stop.signal }), problem: "" };
      } catch (error) {
        if (stop.signal.aborted) return;
        if (isSaid(error)) answer.value = { said: null, problem: error.message };
      }
    };
    const first = setTimeout(() => void ask(), TYPING_MS);
    const again = setInterval(() => void ask(), RENEWED_MS);
    return () => {
      clearTimeout(first);
      clearInterval(again);
      stop.abort();
    };
  }, [text, asks, known]);
  return { said: answer.value.said, problem: unread || answer.value.problem, asks };
}

// A request that is not whole yet is no error until its field is left.
function Answer({ answer: { said, problem, asks }, shown }: { answer: Asked; shown: boolean }) {
  if (!asks) return <p class="muted">{t("verdictEmpty")}</p>;
  if (problem) return <p class="problem">{problem}</p>;
  if (!said) return <p class="muted">{t("computing")}</p>;
  if (said.outcome === "Invalid" && !shown) return <p class="muted">{t("verdictTyping")}</p>;
  return <Verdict said={said} />;
}

interface FormProps {
  base: Base;
  left: Signal<ReadonlySet<string>>;
}

function Form({ base: { spec: base, known }, left }: FormProps) {
  const refusal = useSignal("");
  const busy = useSignal(false);
  const request = requestOf();
  const problems = problemsOf(request, base);
  const leave = (name: FieldName) => () => {
    if (!left.value.has(name)) left.value = new Set([...left.value, name]);
  };
  const seen = (name: FieldName): string => (left.value.has(name) ? problems[name] : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    left.value = new Set(Object.keys(problems));
    if (Object.values(problems).some(Boolean)) {
      requestAnimationFrame(() => document.querySelector<HTMLElement>('form [aria-invalid="true"]')?.focus());
      return;
    }
    busy.value = true;
    try {
      const body = { namespace: namespaceOf(), spec: specOf(request, base), ...(value("name") ? { name: value("name") } : {}) };
      const made = await post<JobRow>("/api/v3/jobs", body, { headers: { "Idempotency-Key": crypto.randomUUID() } });
      notify(t("submittedAs", called(made)));
      go(pathTo("job", made.namespace, made.name));
    } catch (error) {
      refusal.value = failure(error);
    }
    busy.value = false;
  };
  const text = (name: FieldName) => ({ value: value(name), onText: (typed: string) => setQuery({ [name]: typed }), onBlur: leave(name) });
  return (
    <form class="stack wide" noValidate onSubmit={(event) => void submit(event)}>
      <Card title={t("whatRuns")}>
        <div class="fields">
          <Field label={t("name")} optional hint={t("nameHow")} problem={seen("name")}>
            <Input {...text("name")} />
          </Field>
          <Field label={t("namespace")}>
            <Combobox free label={t("namespace")} values={namespaces.value} value={namespaceOf()} onChoose={(namespace) => setQuery({ namespace })} />
          </Field>
          <Field label={t("image")} optional={!needsImage()} hint={t(needsImage() ? "imageHow" : "imageUnused")} problem={seen("image")} wide>
            <Input placeholder="pytorch/pytorch:latest" {...text("image")} />
          </Field>
          <Field label={t("command")} optional={Boolean(request.image || base.template)} hint={t("commandHow")} problem={seen("command")} wide>
            <TextArea rows={2} placeholder="python train.py" {...text("command")} />
          </Field>
        </div>
      </Card>
      <Card title={t("whatItNeeds")}>
        <div class="fields">
          <Field label={t("gpuRequest")} hint={t("gpuRequestHow")} problem={seen("gpu")}>
            <Input {...text("gpu")} />
          </Field>
          <Field label={t("workers")} optional hint={t("workersHow")} problem={seen("workers")}>
            <Input inputMode="numeric" placeholder="1" {...text("workers")} />
          </Field>
          <Field label={t("timeLimit")} optional hint={t("timeLimitHow")} problem={seen("limit")}>
            <Input {...text("limit")} />
          </Field>
          <Field label={t("priority")} optional hint={t("priorityHow")} problem={seen("priority")}>
            <Input inputMode="numeric" placeholder="10" {...text("priority")} />
          </Field>
          <Field label={t("mode")} optional>
            <Select value={value("mode")} choices={[["", t("modeDefault")], ...MODES.map((mode) => [mode, mode] as const)]} onChoose={(mode) => setQuery({ mode })} />
          </Field>
        </div>
      </Card>
      <Card title={t("environment")}>
        <Variables problem={seen("env")} onLeave={leave("env")} />
      </Card>
      <Card title={t("volumes")}>
        <Volumes problem={seen("volumes")} onLeave={leave("volumes")} />
      </Card>
      <Card title={t("manyAndAfter")}>
        <div class="fields">
          <Field label={t("array")} optional hint={t("arrayHow")} problem={seen("array")}>
            <Input {...text("array")} />
          </Field>
          <After />
        </div>
      </Card>
      <div class="row">
        <Button type="submit" kind="primary" icon={Send} disabled={busy.value || !known}>
          {t("submitJob")}
        </Button>
        <span role="alert" class="problem">{refusal.value}</span>
      </div>
    </form>
  );
}

// What Submit sends: as YAML for kubectl, and as a line of gbatch where one says the same.
function Written({ base }: { base: Partial<JobSpec> }) {
  const request = requestOf();
  const sound = soundPart(request, problemsOf(request, base));
  const name = value("name");
  const line = !base.template && sound.command ? gbatchLine(sound, namespaceOf(), name) : "";
  const asCommand = value("as") === "command";
  const yaml = manifest(namespaceOf(), name || "my-job", specOf(sound, base));
  return (
    <section class="card" aria-label={t("sends")}>
      <Tabs
        label={t("sends")}
        tabs={[
          { href: withQuery({ as: "" }), text: t("asYaml"), current: !asCommand },
          { href: withQuery({ as: "command" }), text: t("asCommand"), current: asCommand },
        ]}
      />
      <div class="body">
        {!asCommand ? <Code label={t("asYaml")} text={yaml} /> : line ? <Code label={t("asCommand")} text={line} /> : <Code label={t("asCommand")} text={`kubectl create -f - <<'END'\n${yaml}END`} />}
      </div>
    </section>
  );
}
