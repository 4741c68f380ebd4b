// The frame of a chart: its title, its legend, and what it shows in words for those who do not see it.
import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  legend?: ComponentChildren;
  // What the chart shows, in a sentence.
  text: string;
  children: ComponentChildren;
}

export const Chart = ({ title, legend, text, children }: Props) => (
  <figure class="chart">
    <figcaption>
      <span>{title}</span>
      {legend}
    </figcaption>
    <div role="img" aria-label={text}>
      {children}
    </div>
  </figure>
);
