// A table of some rows. On a telephone, each row becomes a block of labelled lines.
import type { ComponentChildren } from "preact";

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  // A sentence, which may have several lines.
  text?: boolean;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
}

// The roles are written out because a telephone's layout would take them away.
export const Table = <T,>({ label, rows, columns, keyOf }: Props<T>) => (
  <div class="table-frame">
    <table class="table stacks" role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th key={column.id} scope="col" role="columnheader" class={column.number ? "number" : ""}>
              {column.title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={keyOf(row)} role="row">
            {columns.map((column) => (
              <td key={column.id} role="cell" data-label={column.title} class={column.number ? "number" : column.text ? "text" : ""}>
                <div class="cell">{column.cell(row)}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);
