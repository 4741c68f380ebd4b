// Short messages about what was done. They are announced, and leave by themselves.
import { CircleAlert, CircleCheck, X } from "lucide";
import { normalizeProps, useMachine } from "@zag-js/preact";
import * as toast from "@zag-js/toast";
import { useId } from "preact/hooks";
import { t } from "../texts";
import { Icon } from "./icon";

const store = toast.createStore({ placement: "bottom-end", max: 4, overlap: false, gap: 8, offsets: "1.25rem" });

export const notify = (title: string): void => void store.create({ title, type: "success", duration: 5000 });
export const notifyProblem = (title: string): void => void store.create({ title, type: "error", duration: 12_000 });

export function Toasts() {
  const service = useMachine(toast.group.machine, { id: useId(), store });
  const api = toast.group.connect(service, normalizeProps);
  return (
    <div {...api.getGroupProps({ label: t("messages") })} class="toasts">
      {api.getToasts().map((each, index) => (
        <Toast key={each.id} each={each} index={index} parent={service} />
      ))}
    </div>
  );
}

type Shown = ReturnType<ReturnType<typeof toast.group.connect>["getToasts"]>[number];

function Toast({ each, index, parent }: { each: Shown; index: number; parent: toast.GroupService }) {
  const service = useMachine(toast.machine, { ...each, index, parent });
  const api = toast.connect(service, normalizeProps);
  return (
    <div {...api.getRootProps()} class="toast">
      <Icon of={each.type === "error" ? CircleAlert : CircleCheck} />
      <div {...api.getTitleProps()}>{api.title}</div>
      <button {...api.getCloseTriggerProps()} aria-label={t("close")} class="button button-quiet button-icon button-small">
        <Icon of={X} />
      </button>
    </div>
  );
}
