// A short text at what the pointer or the focus is on.
import { normalizeProps, useMachine } from "@zag-js/preact";
import * as tooltip from "@zag-js/tooltip";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  text: string;
  children: (trigger: object) => ComponentChildren;
}

export function Tooltip({ text, children }: Props) {
  const service = useMachine(tooltip.machine, { id: useId(), openDelay: 400, closeDelay: 0, positioning: { strategy: "fixed", placement: "top" } });
  const api = tooltip.connect(service, normalizeProps);
  // The trigger has the text as its label already, so it needs no description.
  const { "aria-describedby": _described, ...trigger } = api.getTriggerProps() as Record<string, unknown>;
  return (
    <>
      {children(trigger)}
      {api.open && (
        <div {...api.getPositionerProps()}>
          <div {...api.getContentProps()} class="tooltip">
            {text}
          </div>
        </div>
      )}
    </>
  );
}
