// Fields of forms, with their hints and errors, and the search field of a toolbar.
import { Search as SearchIcon } from "lucide";
import type { ComponentChildren } from "preact";
import { cloneElement, type VNode } from "preact";
import { useId } from "preact/hooks";
import { t } from "../texts";
import { Icon } from "./icon";

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  // Why what was entered is not accepted; shown in place of the hint.
  problem?: string;
  optional?: boolean;
  wide?: boolean;
  children: VNode<any>;
}

// The label, the control, and below it the hint or what is wrong with the value.
export function Field({ label, hint, problem, optional, wide, children }: FieldProps) {
  const id = useId();
  const below = problem || hint;
  const described = { id, "aria-describedby": below ? `${id}-below` : undefined, "aria-invalid": problem ? "true" : undefined };
  return (
    <div class={wide ? "field whole" : "field"}>
      <span>
        <label for={id}>{label}</label>
        {optional && <span class="optional"> {t("optional")}</span>}
      </span>
      {cloneElement(children, described)}
      {below && (
        <small id={`${id}-below`} class={problem ? "problem" : ""} role={problem ? "alert" : undefined}>
          {below}
        </small>
      )}
    </div>
  );
}

interface InputProps {
  value: string;
  onText: (text: string) => void;
  onBlur?: () => void;
  // Shown as dots.
  secret?: boolean;
  inputMode?: "text" | "numeric";
  placeholder?: string;
  required?: boolean;
  "aria-label"?: string;
}

export const Input = ({ onText, secret = false, ...rest }: InputProps) => (
  <input class="input" autocomplete="off" spellcheck={false} {...rest} type={(secret ? "password" : "text") as "text"} onInput={(event) => onText(event.currentTarget.value)} />
);

interface AreaProps {
  value: string;
  onText: (text: string) => void;
  onBlur?: () => void;
  rows: number;
  placeholder?: string;
}

export const TextArea = ({ onText, ...rest }: AreaProps) => (
  <textarea class="input mono" autocomplete="off" spellcheck={false} {...rest} onInput={(event) => onText(event.currentTarget.value)} />
);

export type Choice = readonly [value: string, text: string];

interface SelectProps {
  value: string;
  choices: readonly Choice[];
  onChoose: (value: string) => void;
  id?: string;
  label?: string;
}

export const Select = ({ value, choices, onChoose, label, ...rest }: SelectProps) => (
  <select class="select" {...rest} aria-label={label} value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
    {choices.map(([each, text]) => (
      <option key={each} value={each}>
        {text}
      </option>
    ))}
  </select>
);

// The search of a page; `/` leads to it from everywhere.
export const Search = ({ label, value, onText }: { label: string; value: string; onText: (text: string) => void }) => (
  <div class="search">
    <Icon of={SearchIcon} />
    <input class="input" type="search" data-search aria-label={label} placeholder={label} value={value} onInput={(event) => onText(event.currentTarget.value)} />
  </div>
);
