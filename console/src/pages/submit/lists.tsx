// The parts of the form with any number of lines: variables, volumes, and the jobs to wait for.
import { Plus, X } from "lucide";
import { Badge } from "../../design/badge";
import { Button, IconButton } from "../../design/button";
import { Combobox } from "../../design/combobox";
import { Field, Input } from "../../design/field";
import { byName, jobs } from "../../live/store";
import { FINISHED } from "../../parts/basics";
import { setQuery } from "../../router";
import { t } from "../../texts";
import { namespaceOf, NO_VARIABLE, NO_VOLUME, values } from "./form";

interface LinesProps {
  problem: string;
  onLeave: () => void;
}

const replaced = (list: readonly string[], index: number, text: string): string[] => list.map((each, at) => (at === index ? text : each));
const without = (list: readonly string[], index: number): string[] => list.filter((_, at) => at !== index);

export function Variables({ problem, onLeave }: LinesProps) {
  const lines = values("env");
  const set = (env: readonly string[]) => setQuery({ env });
  return (
    <div class="stack">
      {lines.map((line, index) => {
        const [name = "", ...rest] = line.split("=");
        const text = rest.join("=");
        return (
          <div key={index} class="row whole">
            <Input aria-label={t("variableName", index + 1)} placeholder="NAME" value={name} onBlur={onLeave} onText={(typed) => set(replaced(lines, index, `${typed}=${text}`))} />
            <Input aria-label={t("variableValue", index + 1)} placeholder={t("valueHint")} value={text} onBlur={onLeave} onText={(typed) => set(replaced(lines, index, `${name}=${typed}`))} />
            <IconButton icon={X} label={t("removeVariable", index + 1)} onClick={() => set(without(lines, index))} />
          </div>
        );
      })}
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="row">
        <Button small icon={Plus} onClick={() => set([...lines, NO_VARIABLE])}>{t("addVariable")}</Button>
        {lines.length === 0 && <span class="note">{t("environmentHow")}</span>}
      </div>
    </div>
  );
}

export function Volumes({ problem, onLeave }: LinesProps) {
  const lines = values("volume");
  const set = (volume: readonly string[]) => setQuery({ volume });
  return (
    <div class="stack">
      {lines.map((line, index) => {
        const [claim = "", path = "", access = ""] = line.split(":");
        const write = (changed: { claim?: string; path?: string; readOnly?: boolean }) => {
          const readOnly = changed.readOnly ?? access === "ro";
          set(replaced(lines, index, `${changed.claim ?? claim}:${changed.path ?? path}${readOnly ? ":ro" : ""}`));
        };
        return (
          <div key={index} class="row whole">
            <Input aria-label={t("claim", index + 1)} placeholder={t("claimHint")} value={claim} onBlur={onLeave} onText={(typed) => write({ claim: typed })} />
            <Input aria-label={t("mountPath", index + 1)} placeholder="/data" value={path} onBlur={onLeave} onText={(typed) => write({ path: typed })} />
            <label class="row whole note">
              <input type="checkbox" class="check" checked={access === "ro"} onChange={(event) => write({ readOnly: event.currentTarget.checked })} /> {t("readOnly")}
            </label>
            <IconButton icon={X} label={t("removeVolume", index + 1)} onClick={() => set(without(lines, index))} />
          </div>
        );
      })}
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="row">
        <Button small icon={Plus} onClick={() => set([...lines, NO_VOLUME])}>{t("addVolume")}</Button>
        {lines.length === 0 && <span class="note">{t("volumesHow")}</span>}
      </div>
    </div>
  );
}

// A job may wait for jobs of its own namespace.
export function After() {
  const chosen = values("after");
  const namespace = namespaceOf();
  const offered = jobs.value.filter((job) => job.namespace === namespace && !FINISHED.has(job.phase) && !chosen.includes(job.name)).map((job) => job.name).sort(byName);
  return (
    <div class="stack tight">
      <Field label={t("startAfter")} optional hint={t("startAfterHow")}>
        <Combobox label={t("startAfter")} values={offered} value="" onChoose={(name) => name && setQuery({ after: [...chosen, name] })} />
      </Field>
      <ul class="row">
        {chosen.map((name, index) => (
          <li key={name}>
            <Badge tone="accent">
              {name}
              <button type="button" class="link" aria-label={t("remove", name)} onClick={() => setQuery({ after: without(chosen, index) })}>×</button>
            </Badge>
          </li>
        ))}
      </ul>
    </div>
  );
}
