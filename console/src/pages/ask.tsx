// Ask: a request is judged while it is typed, and the same form submits it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, get, jobPath, post } from "../api/client";
import type { DryRun, JobDetails, JobRow, JobSpec } from "../api/types";
import { keyOf, me, namespaces } from "../live/store";
import { Command, Field, JobLink, Section } from "../parts/basics";
import { Verdict } from "../parts/verdict";
import { gbatchLine, manifest, type Request, RequestProblem, specOf, TYPING_MS } from "../requests";
import { place, setQuery } from "../router";
import { t } from "../texts";

// While a form is open, its answer is renewed this often: the queue goes on.
const AGAIN_MS = 15_000;
const MODES = ["Exclusive", "Fractional", "TimeShared"];

const value = (name: string): string => place.value.query.get(name) ?? "";

const requestOf = (): Request => ({
  gpu: value("gpu"),
  workers: value("workers"),
  priority: value("priority"),
  mode: value("mode"),
  limit: value("limit"),
  image: value("image"),
  command: value("command"),
});

const namespaceOf = (): string => value("namespace") || (namespaces.value[0] ?? "default");

interface Asked {
  said: DryRun | null;
  problem: string;
}

export function AskPage() {
  const base = useBase(value("from"));
  const answer = useAnswer(base);
  return (
    <>
      <h1>{t("ask")}</h1>
      <p>{t("askHow")}</p>
      <div class="columns">
        <Form base={base} />
        <Section title={t("verdict")}>
          <div aria-live="polite" class="verdict">
            {answer.problem ? <p class="problem">{answer.problem}</p> : answer.said ? <Verdict said={answer.said} /> : <p>{t("computing")}</p>}
          </div>
        </Section>
      </div>
      <Written base={base} />
    </>
  );
}

// The spec of the job that is cloned, `namespace/name`.
function useBase(from: string): Partial<JobSpec> {
  const base = useSignal<Partial<JobSpec>>({});
  useEffect(() => {
    const [namespace, name] = from.split("/");
    base.value = {};
    if (!namespace || !name) return;
    void get<JobDetails>(jobPath(namespace, name)).then((found) => (base.value = found.spec), () => undefined);
  }, [from]);
  return base.value;
}

function useAnswer(base: Partial<JobSpec>): Asked {
  const answer = useSignal<Asked>({ said: null, problem: "" });
  const namespace = namespaceOf();
  const request = requestOf();
  const text = JSON.stringify([namespace, request, base]);
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      try {
        const spec = specOf(request, base);
        answer.value = { said: await post<DryRun>("/api/v3/dry-run", { namespace, spec }, { signal: stop.signal }), problem: "" };
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof RequestProblem || error instanceof ApiError) answer.value = { said: null, problem: error.message };
      }
    };
    const first = setTimeout(() => void ask(), TYPING_MS);
    const again = setInterval(() => void ask(), AGAIN_MS);
    return () => {
      clearTimeout(first);
      clearInterval(again);
      stop.abort();
    };
  }, [text]);
  return answer.value;
}

function Form({ base }: { base: Partial<JobSpec> }) {
  const made = useSignal<JobRow | null>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    try {
      const spec = specOf(requestOf(), base);
      const body = { namespace: namespaceOf(), spec, ...(value("name") ? { name: value("name") } : {}) };
      made.value = await post<JobRow>("/api/v3/jobs", body, { headers: { "Idempotency-Key": crypto.randomUUID() } });
      problem.value = "";
    } catch (error) {
      made.value = null;
      problem.value = error instanceof ApiError || error instanceof RequestProblem ? error.message : t("failed", String(error));
    }
    busy.value = false;
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <Field label={t("namespace")}>
        <input list="namespaces" required value={namespaceOf()} onInput={(event) => setQuery({ namespace: event.currentTarget.value })} />
        <datalist id="namespaces">
          {namespaces.value.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </Field>
      <Input name="gpu" label={t("gpuRequest")} hint={t("gpuRequestHow")} />
      <Input name="workers" label={t("workers")} mode="numeric" />
      <Input name="limit" label={t("timeLimit")} hint={t("timeLimitHow")} />
      <Input name="priority" label={t("priority")} hint={t("priorityWould")} mode="numeric" />
      <Field label={t("mode")}>
        <select value={value("mode")} onChange={(event) => setQuery({ mode: event.currentTarget.value })}>
          <option value="">{t("modeDefault")}</option>
          {MODES.map((mode) => (
            <option key={mode}>{mode}</option>
          ))}
        </select>
      </Field>
      <Input name="name" label={t("name")} />
      <Input name="image" label={t("image")} />
      <Input name="command" label={t("command")} />
      <button type="submit" disabled={busy.value}>
        {t("submit")}
      </button>
      <div role="status">
        {made.value && (
          <p>
            {t("submittedAs", "")} <JobLink key={keyOf(made.value)} job={made.value} />
          </p>
        )}
        {problem.value && <p class="problem">{problem.value}</p>}
      </div>
    </form>
  );
}

function Input({ name, label, hint, mode }: { name: string; label: string; hint?: string; mode?: "numeric" }) {
  return (
    <Field label={label} {...(hint ? { hint } : {})}>
      <input inputMode={mode ?? "text"} spellcheck={false} value={value(name)} onInput={(event) => setQuery({ [name]: event.currentTarget.value })} />
    </Field>
  );
}

// The same request for kubectl and gbatch.
function Written({ base }: { base: Partial<JobSpec> }) {
  if (!me.value) return null;
  try {
    const text = manifest(namespaceOf(), value("name") || "my-job", specOf(requestOf(), base));
    const lines = base.template ? [] : [gbatchLine(requestOf(), namespaceOf())];
    return (
      <>
        {lines.length > 0 && <Command lines={lines} />}
        <Command label={t("asYaml")} lines={[text]} />
      </>
    );
  } catch (error) {
    if (error instanceof RequestProblem) return null;
    throw error;
  }
}
