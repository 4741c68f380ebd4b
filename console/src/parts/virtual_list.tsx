// A long list that draws only the entries in view. Entries may differ in height, which each says of itself.
import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";

interface Props<T> {
  label: string;
  entries: readonly T[];
  heightOf: (entry: T) => number;
  keyOf: (entry: T) => string;
  draw: (entry: T) => ComponentChildren;
  onWidth?: (width: number) => void;
  // What the drawing depends on besides the entry; another value draws all entries again.
  fresh?: unknown;
}

const AROUND = 300;
// Scrolling within so many pixels changes nothing that is drawn.
const STEP = 150;

export function VirtualList<T extends object>({ label, entries, heightOf, keyOf, draw, onWidth, fresh }: Props<T>) {
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
  // An element that is given again is not compared: while scrolling, only the entries that come in are drawn.
  const kept = useMemo(() => new WeakMap<T, JSX.Element>(), [entries, fresh]);
  const drawn = (entry: T, place: number): JSX.Element => {
    let element = kept.get(entry);
    if (!element) {
      element = (
        <div role="listitem" class="entry" key={keyOf(entry)} style={{ transform: `translateY(${place}px)`, height: `${heightOf(entry)}px` }}>
          {draw(entry)}
        </div>
      );
      kept.set(entry, element);
    }
    return element;
  };
  const ends = useMemo(() => endsOf(entries, heightOf), [entries]);
  const whole = ends[entries.length] ?? 0;
  const first = indexAt(ends, top.value - AROUND);
  const last = Math.min(entries.length, indexAt(ends, top.value + height.value + AROUND) + 1);
  return (
    <div class="scroll" ref={frame} tabIndex={0} role="region" aria-label={label} onScroll={() => (top.value = Math.floor((frame.current?.scrollTop ?? 0) / STEP) * STEP)}>
      <div class="list" role="list" style={{ height: `${whole}px` }}>
        {entries.slice(first, last).map((entry, index) => drawn(entry, ends[first + index] ?? 0))}
      </div>
    </div>
  );
}

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
