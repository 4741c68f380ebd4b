// Lucide's icons. They are decoration: what they say stands in text or in the label of the button that has them.
import type { IconNode } from "lucide";
import { createElement } from "preact";

export const Icon = ({ of }: { of: IconNode }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    {of.map(([tag, attributes], index) => createElement(tag, { ...attributes, key: index }))}
  </svg>
);
