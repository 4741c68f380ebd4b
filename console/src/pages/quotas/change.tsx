// Changing a quota: what is typed is judged by the queue before it is saved, and refused after someone else's change.
import { useSignal } from "@preact/signals";
import { ApiError, failure, get, patch } from "../../api/client";
import type { QuotaList, QuotaRow } from "../../api/types";
import { Button } from "../../design/button";
import { Command } from "../../design/command";
import { Field, Input, Select } from "../../design/field";
import { Dialog } from "../../design/overlay";
import { notify } from "../../design/toast";
import { RequestProblem } from "../../requests";
import { t } from "../../texts";
import { editOf, type Typed, typedOf } from "./edit";
import { QuotaEffects } from "./effects";

interface Props {
  quota: QuotaRow;
  // Those that could be its parent.
  others: readonly QuotaRow[];
  onSaved: (row: QuotaRow) => void;
  onClose: () => void;
}

const CONFLICT = 409;

export function ChangeQuota({ quota, others, onSaved, onClose }: Props) {
  // The quota as it was read: a change after another one is refused.
  const base = useSignal(quota);
  const typed = useSignal<Typed>(typedOf(quota));
  const refusal = useSignal<{ text: string; conflict: boolean }>({ text: "", conflict: false });
  const busy = useSignal(false);
  const { edit, problem } = judged(base.value, typed.value);
  const set = (name: keyof Typed) => (text: string) => (typed.value = { ...typed.value, [name]: text });
  const save = async (event: Event) => {
    event.preventDefault();
    if (!edit) return;
    busy.value = true;
    try {
      const saved = await patch<QuotaRow>(`/api/v3/quotas/${encodeURIComponent(quota.name)}`, { generation: base.value.generation, spec: edit.spec });
      notify(t("quotaSaved", quota.name));
      onSaved(saved);
      onClose();
    } catch (error) {
      const conflict = error instanceof ApiError && error.status === CONFLICT;
      refusal.value = { conflict, text: conflict ? t("quotaConflict", quota.name) : failure(error) };
    }
    busy.value = false;
  };
  const readAgain = async () => {
    try {
      const found = (await get<QuotaList>("/api/v3/quotas")).items.find((each) => each.name === quota.name);
      if (found) {
        base.value = found;
        typed.value = typedOf(found);
      }
      refusal.value = found ? { text: "", conflict: false } : { text: t("quotaGone", quota.name), conflict: true };
    } catch (error) {
      refusal.value = { text: failure(error), conflict: true };
    }
  };
  const parents = others.filter((each) => each.per === "Together" && each.name !== quota.name).map(({ name }) => [name, name] as const);
  // A parent that one may not see stays as it is.
  const known = !quota.parent || parents.some(([name]) => name === quota.parent) ? parents : [...parents, [quota.parent, quota.parent] as const];
  return (
    <Dialog title={t("changeQuotaOf", quota.name)} onClose={onClose}>
      <form class="stack" noValidate onSubmit={(event) => void save(event)}>
        <div class="fields">
          <Field label={t("guaranteedGpus")} optional hint={t("guaranteedHow")}>
            <Input inputMode="numeric" value={typed.value.guaranteed} onText={set("guaranteed")} />
          </Field>
          <Field label={t("limitGpus")} optional hint={t("limitHow")}>
            <Input inputMode="numeric" value={typed.value.limit} onText={set("limit")} />
          </Field>
          <Field label={t("shares")} optional hint={t("sharesHow")}>
            <Input inputMode="numeric" value={typed.value.shares} onText={set("shares")} />
          </Field>
          <Field label={t("parentQuota")} optional hint={t("parentHow")}>
            <Select value={typed.value.parent} choices={[["", t("noParent")], ...known]} onChoose={set("parent")} />
          </Field>
        </div>
        {problem ? <p class="problem" role="alert">{problem}</p> : <QuotaEffects quota={base.value} spec={edit?.spec ?? null} />}
        {edit && <Command lines={[edit.command]} />}
        <div role="alert">
          {refusal.value.text && <p class="problem">{refusal.value.text}</p>}
          {refusal.value.conflict && <Button onClick={() => void readAgain()}>{t("readAgain")}</Button>}
        </div>
        <div class="buttons">
          <Button onClick={onClose}>{t("leaveAsIs")}</Button>
          <Button type="submit" kind="primary" disabled={busy.value || !edit || refusal.value.conflict}>{t("saveQuota")}</Button>
        </div>
      </form>
    </Dialog>
  );
}

function judged(base: QuotaRow, typed: Typed): { edit: ReturnType<typeof editOf>; problem: string } {
  try {
    return { edit: editOf(base.name, typedOf(base), typed), problem: "" };
  } catch (error) {
    if (error instanceof RequestProblem) return { edit: null, problem: error.message };
    throw error;
  }
}
