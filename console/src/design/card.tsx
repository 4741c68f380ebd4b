// Cards, tiles of one number, and lists of facts.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface CardProps {
  title?: ComponentChildren;
  // At the right of the title.
  actions?: ComponentChildren;
  note?: ComponentChildren;
  // Content that brings its own padding: tables, lists.
  flush?: boolean;
  tone?: "warn" | "bad";
  children: ComponentChildren;
}

export function Card({ title, actions, note, flush, tone, children }: CardProps) {
  const id = useId();
  return (
    <section class={tone ? `card card-${tone}` : "card"} aria-labelledby={title ? id : undefined}>
      {title && (
        <header>
          <h2 id={id}>{title}</h2>
          {actions}
        </header>
      )}
      <div class={flush ? "body flush" : "body"}>{children}</div>
      {note && <footer>{note}</footer>}
    </section>
  );
}

interface TileProps {
  label: string;
  value: ComponentChildren;
  // What the number is a part of, or its unit.
  of?: string;
  note?: ComponentChildren;
  href?: string;
  children?: ComponentChildren;
}

// One number with its name; a link to what is behind it where there is more.
export function StatTile({ label, value, of, note, href, children }: TileProps) {
  const content = (
    <>
      <span class="tile-label">{label}</span>
      <span class="tile-value">
        {value} {of && <small>{of}</small>}
      </span>
      {children}
      {note && <span class="tile-note">{note}</span>}
    </>
  );
  return href ? <a class="tile" href={href}>{content}</a> : <div class="tile">{content}</div>;
}

export type Fact = readonly [label: string, value: ComponentChildren];

export const Facts = ({ facts }: { facts: readonly Fact[] }) => (
  <dl class="facts">
    {facts.map(([label, value]) => (
      <div key={label}>
        <dt>{label}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);
