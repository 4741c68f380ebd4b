// A button that opens a list of actions.
import type { IconNode } from "lucide";
import { normalizeProps, useMachine } from "@zag-js/preact";
import * as menu from "@zag-js/menu";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Icon } from "./icon";

export interface Item {
  id: string;
  text: string;
  icon?: IconNode;
  // At the right, such as the item's shortcut.
  end?: string;
  // A line above it.
  apart?: boolean;
  onSelect: () => void;
}

interface Props {
  label: string;
  items: readonly Item[];
  // What the button shows.
  children: ComponentChildren;
  look?: string;
  placement?: "bottom-end" | "bottom-start" | "top-start";
}

export function Menu({ label, items, children, look = "button button-secondary", placement = "bottom-end" }: Props) {
  const service = useMachine(menu.machine, {
    id: useId(),
    "aria-label": label,
    positioning: { strategy: "fixed", placement, gutter: 4 },
    onSelect: ({ value }) => items.find((item) => item.id === value)?.onSelect(),
  });
  const api = menu.connect(service, normalizeProps);
  return (
    <>
      <button {...api.getTriggerProps()} type="button" class={look} aria-label={label}>
        {children}
      </button>
      <div {...api.getPositionerProps()}>
        <div {...api.getContentProps()} class="popup">
          {items.map((item) => (
            <div key={item.id}>
              {item.apart && <hr class="option-line" />}
              <div {...api.getItemProps({ value: item.id })} class="option">
                {item.icon && <Icon of={item.icon} />}
                {item.text}
                {item.end && <span class="end">{item.end}</span>}
              </div>
            </div>
          ))}
        </div>
      </div>
    </>
  );
}
