// A real table that draws only the rows in view, so that 10,000 rows scroll as 30 do.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Column } from "../design/table";
import { narrow } from "../narrow";
import { memo } from "./memo";

// Columns of a virtual table may be ordered by; a title that is no text stands for itself.
export interface VirtualColumn<T> extends Column<T> {
  head?: ComponentChildren;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly VirtualColumn<T>[];
  // The whole row on a telephone, in two lines.
  compact: (row: T) => ComponentChildren;
  keyOf: (row: T) => string;
  sort?: string;
  onSort?: (id: string) => void;
}

// The heights of the styles, in pixels.
const ROW = 41;
const COMPACT_ROW = 77;
const HEAD = 36;
const AROUND = 8;
// Rows come in by so many, so that not every frame draws some.
const STEP = 4;

export function VirtualTable<T extends object>({ label, rows, columns: wide, compact, keyOf, sort, onSort }: Props<T>) {
  const rowHeight = narrow.value ? COMPACT_ROW : ROW;
  const columns = useMemo(() => (narrow.value ? [{ id: "compact", title: label, cell: compact }] : wide), [narrow.value, wide, compact, label]);
  const top = useSignal(0);
  const height = useSignal(600);
  const frame = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const watch = new ResizeObserver(() => (height.value = element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, top.value / rowHeight - AROUND);
  const last = Math.min(rows.length, Math.ceil((top.value + height.value) / rowHeight) + STEP + AROUND);
  return (
    <div class="scroll" style={{ "--content": `${HEAD + rows.length * rowHeight}px` }} ref={frame} tabIndex={0} role="region" aria-label={label} onScroll={() => (top.value = stepOf(frame.current?.scrollTop ?? 0, rowHeight))}>
      <table class={narrow.value ? "table two-lines" : "table"} aria-label={label} aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Head key={column.id} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space height={first * rowHeight} columns={columns.length} />
          {rows.slice(first, last).map((row, index) => (
            <Row key={keyOf(row)} row={row} columns={columns as readonly VirtualColumn<unknown>[]} index={first + index} />
          ))}
          <Space height={(rows.length - last) * rowHeight} columns={columns.length} />
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  row: unknown;
  columns: readonly VirtualColumn<unknown>[];
  index: number;
}

// While scrolling, only the rows that come in are drawn, and a time that passes draws its row and not the table.
const Row = memo(({ row, columns, index }: RowProps) => (
  <tr aria-rowindex={index + 2}>
    {columns.map((column) => (
      <td key={column.id} class={column.number ? "number" : ""}>
        {column.cell(row)}
      </td>
    ))}
  </tr>
));

interface HeadProps<T> {
  column: VirtualColumn<T>;
  sort: string | undefined;
  onSort: ((id: string) => void) | undefined;
}

function Head<T>({ column, sort, onSort }: HeadProps<T>) {
  const down = sort === `-${column.id}`;
  const sorted = down || sort === column.id;
  const direction = down ? "descending" : "ascending";
  return (
    <th scope="col" aria-sort={sorted ? direction : "none"} class={column.number ? "number" : ""}>
      {column.head ?? (onSort ? (
        <button type="button" class="sort" onClick={() => onSort(sorted && !down ? `-${column.id}` : column.id)}>
          {column.title}
          <span aria-hidden="true">{sorted ? (down ? " ▾" : " ▴") : ""}</span>
        </button>
      ) : (
        column.title
      ))}
    </th>
  );
}

// Scrolling within a step changes nothing that is drawn.
const stepOf = (place: number, row: number): number => Math.floor(place / (row * STEP)) * row * STEP;

// The height of rows that are not drawn.
function Space({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={columns} style={{ height: `${height}px` }} />
    </tr>
  );
}
