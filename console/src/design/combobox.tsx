// A field with a list of what it may take, found by typing.
import { ChevronDown, X } from "lucide";
import * as combobox from "@zag-js/combobox";
import { normalizeProps, useMachine } from "@zag-js/preact";
import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { t } from "../texts";
import { Icon } from "./icon";

interface Props {
  label: string;
  values: readonly string[];
  value: string;
  onChoose: (value: string) => void;
  // Whether a text that is not in the list may be entered too.
  free?: boolean;
  // In a toolbar, the label is the placeholder, and a chosen value is marked.
  inBar?: boolean;
  id?: string;
}

// More are found by typing.
const MOST_SHOWN = 50;

export function Combobox({ label, values, value, onChoose, free = false, inBar = false, id, ...described }: Props) {
  const typed = useSignal("");
  const searched = typed.value.toLowerCase();
  const shown = values.filter((each) => !searched || each.toLowerCase().includes(searched)).slice(0, MOST_SHOWN);
  const own = useId();
  const service = useMachine(combobox.machine, {
    id: own,
    ...(id ? { ids: { input: id } } : {}),
    collection: combobox.collection({ items: shown, itemToValue: (each) => each, itemToString: (each) => each }),
    value: value ? [value] : [],
    inputValue: typed.value || value,
    allowCustomValue: free,
    openOnClick: true,
    inputBehavior: "autohighlight",
    selectionBehavior: "replace",
    positioning: { strategy: "fixed", placement: "bottom-start", gutter: 4, sameWidth: false },
    onInputValueChange: ({ inputValue, reason }) => {
      if (reason === "input-change") typed.value = inputValue;
      if (free && reason === "input-change") onChoose(inputValue);
    },
    onValueChange: ({ value: chosen }) => {
      typed.value = "";
      onChoose(chosen[0] ?? "");
    },
    onOpenChange: ({ open }) => {
      if (!open) typed.value = "";
    },
  });
  const api = combobox.connect(service, normalizeProps);
  const { "aria-labelledby": _labelled, ...input } = api.getInputProps() as Record<string, unknown>;
  return (
    <div {...api.getRootProps()} class={inBar ? "combobox combobox-in-bar" : "combobox"}>
      <div {...api.getControlProps()}>
        <input {...input} {...described} class="input" aria-label={inBar ? label : undefined} placeholder={inBar ? label : ""} data-chosen={inBar && value ? "" : undefined} />
        {value && !free ? (
          <button {...api.getClearTriggerProps()} aria-label={t("clear", label)} class="button button-quiet button-icon button-small">
            <Icon of={X} />
          </button>
        ) : (
          <button {...api.getTriggerProps()} aria-label={t("openList", label)} class="button button-quiet button-icon button-small">
            <Icon of={ChevronDown} />
          </button>
        )}
      </div>
      <div {...api.getPositionerProps()}>
        <ul {...api.getContentProps()} class="popup" aria-label={label}>
          {shown.map((each) => (
            <li key={each} {...api.getItemProps({ item: each })} class="option">
              {each}
            </li>
          ))}
          {shown.length === 0 && <li class="option muted" role="presentation">{t("noMatch")}</li>}
        </ul>
      </div>
    </div>
  );
}
