// A long list that draws only the entries in view. Entries may differ in height, which each says of itself.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { memo } from "./memo";

interface Props<T> {
  label: string;
  entries: readonly T[];
  heightOf: (entry: T) => number;
  keyOf: (entry: T) => string;
  // Another function draws all entries again.
  draw: (entry: T) => ComponentChildren;
  onWidth?: (width: number) => void;
}

const AROUND = 300;
// Scrolling within so many pixels changes nothing that is drawn.
const STEP = 150;

export function VirtualList<T extends object>({ label, entries, heightOf, keyOf, draw, onWidth }: Props<T>) {
  const top = useSignal(0);
  const height = useSignal(600);
  const frame = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => {
      height.value = element.clientHeight;
      onWidth?.(element.clientWidth);
    });
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const ends = useMemo(() => endsOf(entries, heightOf), [entries]);
  const whole = ends[entries.length] ?? 0;
  const first = indexAt(ends, top.value - AROUND);
  const last = Math.min(entries.length, indexAt(ends, top.value + height.value + AROUND) + 1);
  return (
    <div class="scroll" style={{ "--content": `${whole}px` }} ref={frame} tabIndex={0} role="region" aria-label={label} onScroll={() => (top.value = Math.floor((frame.current?.scrollTop ?? 0) / STEP) * STEP)}>
      <div class="entries" role="list" style={{ height: `${whole}px` }}>
        {entries.slice(first, last).map((entry, index) => (
          <Entry key={keyOf(entry)} entry={entry} place={ends[first + index] ?? 0} height={heightOf(entry)} draw={draw as (entry: unknown) => ComponentChildren} />
        ))}
      </div>
    </div>
  );
}

interface EntryProps {
  entry: unknown;
  place: number;
  height: number;
  draw: (entry: unknown) => ComponentChildren;
}

// While scrolling, only the entries that come in are drawn.
const Entry = memo(({ entry, place, height, draw }: EntryProps) => (
  <div role="listitem" class="entry" style={{ transform: `translateY(${place}px)`, height: `${height}px` }}>
    {draw(entry)}
  </div>
));

// Where each entry begins, and after the last one where all end.
function endsOf<T>(entries: readonly T[], heightOf: (entry: T) => number): readonly number[] {
  const found = [0];
  let at = 0;
  for (const entry of entries) found.push((at += heightOf(entry)));
  return found;
}

// The entry at a place, by halving.
function indexAt(ends: readonly number[], place: number): number {
  let low = 0;
  let high = Math.max(0, ends.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((ends[middle] as number) <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}
