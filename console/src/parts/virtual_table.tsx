// A real table that draws only the rows in view, so that 10,000 rows scroll as 30 do.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { memo } from "./memo";

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  sort?: string;
  onSort?: (id: string) => void;
}

const ROW = 34;
const AROUND = 8;
// Rows come in by so many, so that not every frame draws some.
const STEP = 4;

export function VirtualTable<T extends object>({ label, rows, columns, keyOf, sort, onSort }: Props<T>) {
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
  const first = Math.max(0, top.value / ROW - AROUND);
  const last = Math.min(rows.length, Math.ceil((top.value + height.value) / ROW) + STEP + AROUND);
  return (
    <div class="scroll" ref={frame} tabIndex={0} role="region" aria-label={label} onScroll={() => (top.value = stepOf(frame.current?.scrollTop ?? 0))}>
      <table class="virtual" aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Head key={column.id} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space rows={first} columns={columns.length} />
          {rows.slice(first, last).map((row, index) => (
            <Row key={keyOf(row)} row={row} columns={columns as readonly Column<unknown>[]} index={first + index} />
          ))}
          <Space rows={rows.length - last} columns={columns.length} />
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  row: unknown;
  columns: readonly Column<unknown>[];
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
  column: Column<T>;
  sort: string | undefined;
  onSort: ((id: string) => void) | undefined;
}

function Head<T>({ column, sort, onSort }: HeadProps<T>) {
  const down = sort === `-${column.id}`;
  const sorted = down || sort === column.id;
  const direction = down ? "descending" : "ascending";
  return (
    <th scope="col" aria-sort={sorted ? direction : "none"} class={column.number ? "number" : ""}>
      {onSort ? (
        <button type="button" class="plain" onClick={() => onSort(sorted && !down ? `-${column.id}` : column.id)}>
          {column.title}
          <span aria-hidden="true">{sorted ? (down ? " ▾" : " ▴") : ""}</span>
        </button>
      ) : (
        column.title
      )}
    </th>
  );
}

// Scrolling within a step changes nothing that is drawn.
const stepOf = (place: number): number => Math.floor(place / (ROW * STEP)) * ROW * STEP;

// The height of rows that are not drawn.
function Space({ rows, columns }: { rows: number; columns: number }) {
  if (rows <= 0) return null;
  return (
    <tr aria-hidden="true" class="space">
      <td colSpan={columns} style={{ height: `${rows * ROW}px` }} />
    </tr>
  );
}
