// Buttons, and links that look like them.
import type { IconNode } from "lucide";
import type { ComponentChildren, JSX } from "preact";
import { Icon } from "./icon";
import { Tooltip } from "./tooltip";

// risky opens what a danger button then does.
export type Kind = "primary" | "secondary" | "danger" | "risky" | "quiet";

interface Look {
  kind?: Kind;
  small?: boolean;
  icon?: IconNode;
  children: ComponentChildren;
}

const looks = ({ kind = "secondary", small }: Look, more = ""): string =>
  `button button-${kind}${small ? " button-small" : ""}${more}`;

type ButtonProps = Look & Omit<JSX.IntrinsicElements["button"], "icon" | "class" | "ref">;

export function Button(props: ButtonProps) {
  const { kind: _kind, small: _small, icon, children, ...rest } = props;
  return (
    <button type="button" {...rest} class={looks(props)}>
      {icon && <Icon of={icon} />}
      {children}
    </button>
  );
}

type LinkProps = Look & { href: string; download?: string };

export function ButtonLink(props: LinkProps) {
  const { kind: _kind, small: _small, icon, children, ...rest } = props;
  return (
    <a {...rest} class={looks(props)}>
      {icon && <Icon of={icon} />}
      {children}
    </a>
  );
}

interface IconButtonProps {
  icon: IconNode;
  label: string;
  onClick: () => void;
  kind?: Kind;
  small?: boolean;
  // Of a button that is on or off.
  pressed?: boolean;
}

// A button without text has its label as a tooltip.
export const IconButton = ({ icon, label, onClick, kind = "quiet", small, pressed }: IconButtonProps) => (
  <Tooltip text={label}>
    {(trigger) => (
      <button {...trigger} type="button" aria-label={label} aria-pressed={pressed} class={`button button-icon button-${kind}${small ? " button-small" : ""}`} onClick={onClick}>
        <Icon of={icon} />
      </button>
    )}
  </Tooltip>
);
