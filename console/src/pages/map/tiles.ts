// Devices as tiles: their state, what is promised of them, and the lines of tiles that the map draws. Pure.
import type { DeviceRow, DevicesThen, NodeRow } from "../../api/types";
import { byName } from "../../live/store";
import { type State, stateOf } from "../../parts/devices";
import { promisedOf } from "../../parts/use";
import { t } from "../../texts";

export const GROUPS = ["node", "rack", "model", "pool"] as const;
export type Group = (typeof GROUPS)[number];

// What a tile's colour can say of its device; null where it is not known. All but the temperature are from 0 to 1.
export interface Figures {
  promised: number | null;
  load: number | null;
  memory: number | null;
  // In degrees Celsius.
  temperature: number | null;
}

export interface Tile {
  node: NodeRow;
  device: DeviceRow;
  state: State;
  figures: Figures;
}

export interface Line {
  key: string;
  // The heading of a group; empty for a line of tiles.
  title: string;
  tiles: readonly Tile[];
}

export const nameOf = ({ node, device }: Tile): string => `${node.name}:${device.index}`;

export function tilesOf(nodes: readonly NodeRow[]): Tile[] {
  return nodes.flatMap((node) =>
    node.devices.map((device) => ({ node, device, figures: figuresNow(device), state: stateOf(device) })),
  );
}

const figuresNow = (device: DeviceRow): Figures => ({
  promised: promisedOf(device),
  load: device.utilization,
  memory: device.usedMiB === null ? null : device.usedMiB / Math.max(1, device.memoryMiB),
  temperature: device.temperatureCelsius,
});

const UNKNOWN: Figures = { promised: null, load: null, memory: null, temperature: null };

// The tiles as they were at another time; what was not sampled then is not known.
export function tilesThen(tiles: readonly Tile[], then: DevicesThen): Tile[] {
  const known = new Map<string, Figures>();
  for (const { name, indexes, promised, utilization, memory, temperatureCelsius } of then.nodes)
    indexes.forEach((index, at) =>
      known.set(`${name}:${index}`, {
        promised: Math.min(1, promised[at] ?? 0), load: utilization[at] ?? null, memory: memory[at] ?? null, temperature: temperatureCelsius[at] ?? null,
      }),
    );
  return tiles.map((tile) => ({ ...tile, figures: known.get(nameOf(tile)) ?? UNKNOWN }));
}

const groupOf = ({ node, device }: Tile, by: Group): string =>
  (by === "node" ? node.name : by === "rack" ? node.rack : by === "model" ? device.model : node.pool) || t("none");

// Groups by name, each a heading and lines of `across` tiles; nodes have their name on the line itself.
export function linesOf(tiles: readonly Tile[], by: Group, across: number): Line[] {
  const groups = [...Map.groupBy(tiles, (tile) => groupOf(tile, by))].sort(([a], [b]) => byName(a, b));
  return groups.flatMap(([name, list]) => {
    const lines: Line[] = [{ key: name, title: `${name} (${list.length})`, tiles: [] }];
    for (let at = 0; at < list.length; at += across) lines.push({ key: `${name} ${at}`, title: "", tiles: list.slice(at, at + across) });
    return lines;
  });
}

// What a tile's colour says of its device, from 0 to 1; null where it is not measured.
export const SHADES = ["promised", "load", "memory", "temperature"] as const;
export type Shade = (typeof SHADES)[number];

// Temperatures of GPUs at rest and at their limit, in degrees Celsius.
const COOL = 30;
const HOT = 90;

export function valueOf({ figures }: Tile, by: Shade): number | null {
  const value = figures[by];
  return by !== "temperature" || value === null ? value : Math.max(0, Math.min(1, (value - COOL) / (HOT - COOL)));
}
